use crate::mm::readahead::RaState;
use crate::mm::{Cx, Done, Mm};
use lotsfree_counters::{Meminfo, Values, Vmstat};
use lotsfree_scenario::{Advice, RegionId};
use lotsfree_snapshot::file::zoneinfo::Zone;
impl Mm {
    pub(crate) fn meminfo(&self) -> Values<Meminfo> {
        Values::default()
    }
    pub(crate) fn vmstat(&self) -> Values<Vmstat> {
        Values::default()
    }
    pub(crate) fn zoneinfo(&self) -> Vec<Zone> {
        Vec::new()
    }
    pub(crate) fn madvise(&mut self, cx: &mut Cx, _: RegionId, _: Advice) -> Done {
        cx.spend(100);
        Ok(())
    }
    pub(crate) fn fadvise(&mut self, cx: &mut Cx, _: u32, _: u64, _: u32, _: Advice, _: &mut RaState) -> Done {
        cx.spend(100);
        Ok(())
    }
}
