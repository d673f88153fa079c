//! `pool`: the pool of huge pages, set while the machine is in use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Instance, Kind, Refusal, Site, thread, within};
use crate::op::Op;
use crate::program::Stream;
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

fn once() -> u32 {
    1
}

/// The most times, and the most huge pages: 2 PiB of 2 MiB each.
const TIMES: u32 = 1_000_000;
const PAGES: u64 = 1 << 30;

impl Kind for Pool {
    const ROLES: &'static [&'static str] = &["administrator"];
    const SETS_POOL: bool = true;

    fn build(&self, _: &mut Site<'_>) -> Result<Vec<Instance>, Refusal> {
        let times = within("times", self.times, 1, TIMES)?;
        if self.pages > PAGES {
            return Err(Refusal::new("pages", format!("is {}; it may be at most {PAGES}", self.pages)));
        }
        let stream = Setter { pages: self.pages, times, pause: self.pause.ns() };
        Ok(Instance::only(vec![thread("administrator", &[], stream)]))
    }
}

struct Setter {
    pages: u64,
    /// How often it is still to be set.
    times: u32,
    /// Nanoseconds.
    pause: u64,
}

impl Stream for Setter {
    fn fill(&mut self, out: &mut Vec<Op>) {
        if self.times == 0 {
            return;
        }
        self.times -= 1;
        out.extend([Op::Begin, Op::SetPool { pages: self.pages }, Op::Done]);
        if self.pause > 0 && self.times > 0 {
            out.push(Op::Sleep { ns: self.pause });
        }
    }
}
