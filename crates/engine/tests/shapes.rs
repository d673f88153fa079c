//! The scenarios that ship show what was published.

mod shapes {
    mod memory_hogs;
    mod zone_reclaim;
}
