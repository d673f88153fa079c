//! What runs tell: measures, the mechanism that made a difference, and how far runs are apart.
//!
//! ```text
//! &[Run] ──▶ Comparison of Views ──▶ measures, explain, strategies
//!        ├──▶ compare ──▶ Compared ──▶ Validation
//!        └──▶ blame ──▶ Blame
//! ```
//!
//! Figures and verdicts, without layout: `report` writes them as text, Markdown, JSON and HTML.

pub mod assumed;
pub mod blame;
pub mod compare;
pub mod conditions;
pub mod decision;
pub mod explain;
pub mod interval;
pub mod measure;
pub mod nearest;
pub mod score;
pub mod stages;
pub mod strategies;
pub mod validation;
pub mod view;
