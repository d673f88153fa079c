//! The rules, one file each, by group.

use crate::Rule;

pub mod cgroup;
pub mod faults;
pub mod host;
pub mod hugepages;
pub mod numa;
pub mod reclaim;
pub mod swap;
pub mod thp;

/// All rules, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static dyn Rule> {
    [
        reclaim::RULES,
        hugepages::RULES,
        thp::RULES,
        numa::RULES,
        swap::RULES,
        faults::RULES,
        cgroup::RULES,
        host::RULES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The rule called `id`.
pub fn find(id: &str) -> Option<&'static dyn Rule> {
    all().find(|rule| rule.meta().id == id)
}
