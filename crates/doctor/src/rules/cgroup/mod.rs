//! Control groups and containers.

use crate::rule::rules;

rules! {
    limit_near::LimitNear,
    group_pressure::GroupPressure,
    high_throttle::HighThrottle,
    protection_ineffective::ProtectionIneffective,
    v1_host::V1Host,
    swap_uncapped::SwapUncapped,
    dying_cgroups::DyingCgroups,
    view_mismatch::ViewMismatch,
}
