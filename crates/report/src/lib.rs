//! Findings as text, JSON, Markdown and HTML, and runs side by side.
//!
//! [`Report`] is what is said, complete and versioned: its JSON form is the published schema, and the other
//! forms are renderings of it. Nothing here judges. [`runs`] does the same for what scenarios yielded,
//! [`blame`] for who lost time to memory.

pub mod blame;
mod chart;
mod html;
mod json;
mod markdown;
mod nagios;
mod palette;
mod plots;
mod report;
pub mod runs;
mod sheet;
mod stacked;
mod svg;
mod text;
mod words;

pub use html::html;
pub use json::{json, schema};
pub use markdown::markdown;
pub use nagios::{NagiosStatus, nagios, nagios_unknown};
pub use report::{HostLine, Report, Series, Source, Unread};
pub use text::{TextOptions, text};
