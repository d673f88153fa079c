//! `pool`: the pool of huge pages, set while the machine is in use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::repeat::{Repeat, once};
use super::{Instance, Kind, Refusal, Site, thread};
use crate::op::Op;
use crate::quantity::Time;

/// Sets the size of the pool of huge pages, as `sysctl -w vm.nr_hugepages=N` does on a host in use.
///
/// Setting it once is one request, whose latency is the time that the kernel took. The kernel makes room by
/// reclaim and compaction and gives up where it finds no whole huge page: a pool that is smaller than it was
/// to be is an error. On this host, the lab puts back the size that the pool had before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    /// How many huge pages of the kernel's default size the pool is to have.
    pub pages: u64,
    /// How often it is set: a pool that has all of them already stays as it is.
    #[serde(default = "once")]
    pub times: u32,
    /// Pause after each time.
    #[serde(default)]
    pub pause: Time,
}

/// The most huge pages: 2 PiB of 2 MiB each.
const PAGES: u64 = 1 << 30;

impl Kind for Pool {
    const ROLES: &'static [&'static str] = &["administrator"];
    const SETS_POOL: bool = true;

    fn build(&self, _: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        if self.pages > PAGES {
            return Err(Refusal::new("pages", format!("is {}; it may be at most {PAGES}", self.pages)));
        }
        let stream = Repeat::new(Op::SetPool { pages: self.pages }, self.times, self.pause)?;
        Ok(Instance::only(vec![thread("administrator", &[], stream)]))
    }
}
