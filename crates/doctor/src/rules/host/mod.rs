//! The host, its hardware and its configuration.

use crate::rule::rules;

rules! {
    impossible_figures::ImpossibleFigures,
    balloon::Balloon,
    config_drift::ConfigDrift,
    two_tuners::TwoTuners,
    hardware_errors::HardwareErrors,
    fragmentation::Fragmentation,
    mglru::Mglru,
    known_bad_kernel::KnownBadKernel,
}
