//! Reclaim and page cache.

use crate::rule::rules;

rules! {
    zone_reclaim::ZoneReclaim,
}
