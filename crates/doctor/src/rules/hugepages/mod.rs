//! Page tables and huge pages.

use crate::rule::rules;

rules! {
    pagetable_bloat::PagetableBloat,
}
