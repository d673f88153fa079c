//! Page faults and locked memory.

use crate::rule::rules;

rules! {
    minor_faults_in_steady_state::MinorFaultsInSteadyState,
    major_faults::MajorFaults,
    partial_lock::PartialLock,
    overlocked::Overlocked,
}
