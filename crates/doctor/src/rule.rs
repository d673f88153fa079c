//! [`Rule`]: its documentation, its result and the macros that declare it.

use std::borrow::Cow;

use crate::{Context, Finding};

/// Subject of a rule; also the directory of its file and its chapter in `docs/rules.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Reclaim and page cache.
    Reclaim,
    /// Page tables and huge pages.
    HugePages,
    /// Transparent huge pages.
    Thp,
    /// NUMA.
    Numa,
    /// Swap, overcommit and the OOM killer.
    Swap,
    /// Page faults and locked memory.
    Faults,
    /// Control groups and containers.
    Cgroup,
    /// The host, its hardware and its configuration.
    Host,
}

/// Facts about a rule that are known without running it.
#[derive(Debug)]
pub struct Meta {
    /// Id of the rule, in words.
    pub id: &'static str,
    /// Group of the rule.
    pub group: Group,
    /// Documentation of the rule in Markdown: a first paragraph that says what it finds, then the sections
    /// Sees, Hurts, Remedies, False alarms, References.
    pub doc: &'static str,
}

impl Meta {
    /// Summary in one sentence: the first paragraph of its documentation.
    pub fn summary(&self) -> String {
        self.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// Lines of its documentation, without the blank that `///` leaves at the start of each.
    pub fn lines(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line))
    }
}

/// Reason why a rule has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The rule needs these files or fields, which are missing.
    Unknown(Vec<String>),
    /// The rule needs two samples.
    NeedsSamples,
    /// The rule does not concern this host, for this reason.
    NotApplicable(Cow<'static, str>),
}

impl Skip {
    /// A skip for one missing file or field.
    pub fn missing(what: impl Into<String>) -> Self {
        Skip::Unknown(vec![what.into()])
    }

    /// A skip because the rule does not concern this host.
    pub fn because(why: impl Into<Cow<'static, str>>) -> Self {
        Skip::NotApplicable(why.into())
    }
}

/// Findings (none if the host is fine in this respect), or the reason why there is no result.
pub type Outcome = Result<Vec<Finding>, Skip>;

/// Documentation of a rule; implemented by the `rule!` macro.
pub trait Describe {
    /// Id, group and documentation.
    fn meta(&self) -> &'static Meta;
}

/// A rule.
pub trait Rule: Describe + Sync {
    /// Judges the host. It is pure: it depends on the context only.
    ///
    /// # Errors
    /// The reason why there is no result.
    fn check(&self, cx: &Context<'_>) -> Outcome;
}

/// Declares a rule's type with its documentation, which `lotsfree explain` shows.
macro_rules! rule {
    ($(#[doc = $doc:literal])+ pub $name:ident = $id:literal in $group:ident) => {
        $(#[doc = $doc])+
        #[derive(Debug)]
        pub struct $name;

        impl $name {
            /// The rule's id.
            pub const ID: &'static str = $id;
        }

        impl $crate::Describe for $name {
            fn meta(&self) -> &'static $crate::Meta {
                static META: $crate::Meta = $crate::Meta {
                    id: $id,
                    group: $crate::Group::$group,
                    doc: concat!($($doc, "\n"),+),
                };
                &META
            }
        }
    };
}

/// Registers the rules of a group: `file::Type`, one a line.
macro_rules! rules {
    ($($module:ident::$rule:ident,)*) => {
        $(pub(crate) mod $module;)*
        $(pub use $module::$rule;)*

        /// The group's rules.
        pub(crate) const RULES: &[&dyn $crate::Rule] = &[$(&$module::$rule),*];
    };
}

pub(crate) use {rule, rules};
