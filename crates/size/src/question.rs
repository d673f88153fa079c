//! [`Question`], and what a host can say for what was not given.

use lotsfree_units::Bytes;

use crate::{Answer, CacheFigures, HostMemory, SizeError};

/// A sizing question: its fields are the arguments of its command.
pub trait Question {
    /// Takes from `host` what was not given.
    ///
    /// # Errors
    ///
    /// [`SizeError`] if the question is about something that the host does not have.
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError>;

    /// The kernel whose rules apply, as far as it is known, for a question whose answer depends on it.
    fn kernel(&self) -> Option<Option<&str>>;

    /// The answer, step by step.
    ///
    /// # Errors
    ///
    /// [`SizeError`] for what is missing, impossible or contradictory.
    fn answer(&self) -> Result<Answer, SizeError>;
}

/// Figures of a host; `None` for what could not be read. The caller fills them from a snapshot.
#[derive(Clone, Debug, Default)]
pub struct HostFigures {
    /// The kernel's release, as `uname -r` prints it, or the name of the rules that fit what is known.
    pub kernel: Option<String>,
    /// The base page size.
    pub page: Option<Bytes>,
    /// `Hugepagesize`, the default huge page size.
    pub huge_page: Option<Bytes>,
    /// `MemTotal`.
    pub ram: Option<Bytes>,
    /// All huge page pools of all sizes.
    pub hugetlb: Option<Bytes>,
    /// `SwapTotal`.
    pub swap: Option<Bytes>,
    /// `Committed_AS`.
    pub committed: Option<Bytes>,
    /// NUMA nodes.
    pub nodes: Option<u32>,
    /// Zones with memory, of all nodes.
    pub zones: Option<u64>,
    /// Transparent huge pages are set to `never`.
    pub thp_never: bool,
    /// What memory is used for today; its shared segments are those that somebody has mapped, as orphans
    /// should go, not be given huge pages.
    pub memory: HostMemory,
    /// `vm.overcommit_ratio`, in percent.
    pub overcommit_ratio: Option<u64>,
    /// `vm.overcommit_kbytes`; 0 where the ratio counts.
    pub overcommit_kbytes: Option<Bytes>,
    /// `vm.admin_reserve_kbytes`.
    pub admin_reserve: Option<Bytes>,
    /// `vm.user_reserve_kbytes`.
    pub user_reserve: Option<Bytes>,
    /// `vm.watermark_scale_factor`, in ten-thousandths.
    pub scale_factor: Option<u64>,
    /// `vm.min_free_kbytes`.
    pub min_free: Option<Bytes>,
    /// What mode 0 of overcommit looked at before 5.2.
    pub cache: Option<CacheFigures>,
}

/// Why a figure is not known, and how to give it: `sourced` where a host or a saved source has been read, and
/// does not tell it either.
pub(crate) fn not_told(what: &str, option: &str, sourced: bool) -> String {
    match sourced {
        true => format!("the source does not tell {what} (give {option})"),
        false => format!("{what} was not given ({option}, --from-host or --from FILE)"),
    }
}

/// Takes the host's figure where none was given.
pub(crate) fn take<T>(given: &mut Option<T>, of_host: Option<T>) {
    if given.is_none() {
        *given = of_host;
    }
}
