//! The scenarios that ship show what was published.

mod shapes {
    mod parallelio;
    mod zone_reclaim;
}
