//! The scenarios that ship show what was published.

mod shapes {
    mod zone_reclaim;
}
