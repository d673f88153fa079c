//! `/proc/PID/limits`.

use serde::Serialize;

use crate::file::cgroup::Limit;

/// Soft and hard limit of the rows that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessLimits {
    /// `Max locked memory`, bytes: soft, hard.
    pub locked_memory: Option<(Limit, Limit)>,
    /// `Max address space`, bytes.
    pub address_space: Option<(Limit, Limit)>,
    /// `Max data size`, bytes.
    pub data: Option<(Limit, Limit)>,
    /// `Max stack size`, bytes.
    pub stack: Option<(Limit, Limit)>,
    /// `Max resident set`, bytes (not enforced by Linux).
    pub resident: Option<(Limit, Limit)>,
}
