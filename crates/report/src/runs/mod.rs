//! What scenarios yielded, run by run: one page with pictures, text, JSON, and a sentence that says which
//! mechanism made the difference.
//!
//! ```text
//! &[Run] ──▶ Comparison of Views ──▶ measures ─┐
//!                               ├──▶ explain ──┼──▶ html · text · json
//!                               └──▶ pictures ─┘
//! ```
//!
//! The first run is what the others are compared with. Of a sweep, columns, sentences and pictures over time
//! show each variant at one value; the picture over the sweep shows all.

mod bars;
mod blame;
pub mod compare;
mod expected;
mod json;
mod page;
mod pictures;
mod spaces;
mod strategies;
pub(crate) mod text;
mod validation;
mod worth;

pub use json::runs_json;
pub use page::{PicturePage, runs_html, runs_pictures};
pub use strategies::{strategies_json, strategies_schema, strategies_text};
pub use text::runs_text;
pub use validation::{validation_markdown, validation_tables};
