//! The scenarios that ship show what was published.

mod shapes {
    mod memory_hogs;
    mod parallelio;
    mod zone_reclaim;
}
