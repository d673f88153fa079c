//! What a rule is.

use std::borrow::Cow;

use crate::{Context, Finding};

/// What a rule concerns; also the directory of its file and its chapter in `docs/rules.md`.
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

/// What is known of a rule without running it.
#[derive(Debug)]
pub struct Meta {
    /// Its id, in words.
    pub id: &'static str,
    /// Its group.
    pub group: Group,
    /// Its documentation, Markdown: a first paragraph that says what it finds, then the sections Sees, Hurts,
    /// Remedies, False alarms, References.
    pub doc: &'static str,
}

impl Meta {
    /// What it finds, in one sentence: the first paragraph of its documentation.
    pub fn summary(&self) -> String {
        self.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The lines of its documentation, without the blank that `///` leaves before each.
    pub fn lines(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line))
    }
}

/// Why a rule has nothing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// These files or fields would be needed.
    Unknown(Vec<String>),
    /// Two samples would be needed.
    NeedsSamples,
    /// It does not concern this host, and why.
    NotApplicable(Cow<'static, str>),
}

impl Skip {
    /// The one file or field that is missing.
    pub fn missing(what: impl Into<String>) -> Self {
        Skip::Unknown(vec![what.into()])
    }

    /// The rule does not concern this host.
    pub fn because(why: impl Into<Cow<'static, str>>) -> Self {
        Skip::NotApplicable(why.into())
    }
}

/// Findings (none: the host is fine in this respect), or why nothing can be said.
pub type Outcome = Result<Vec<Finding>, Skip>;

/// Documentation of a rule; implemented by the `rule!` macro.
pub trait Describe {
    /// Id, group and documentation.
    fn meta(&self) -> &'static Meta;
}

/// A rule.
pub trait Rule: Describe + Sync {
    /// Judges the host. Pure: asks the context and nothing else.
    ///
    /// # Errors
    /// Says why nothing can be said.
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
