//! NUMA.

use crate::rule::rules;

mod balance;

rules! {
    node_imbalance::NodeImbalance,
    remote_alloc::RemoteAlloc,
    balancing_on_pinned::BalancingOnPinned,
    topology_hole::TopologyHole,
    constraint_oom::ConstraintOom,
    policy_not_interleave::PolicyNotInterleave,
    tier_churn::TierChurn,
}
