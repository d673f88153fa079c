use crate::mm::readahead::RaState;
use crate::mm::{Cx, Done, Mm};
use lotsfree_scenario::{Advice, RegionId};
impl Mm {
    pub(crate) fn madvise(&mut self, cx: &mut Cx, _: RegionId, _: Advice) -> Done {
        cx.spend(100);
        Ok(())
    }
    pub(crate) fn fadvise(
        &mut self,
        cx: &mut Cx,
        _: u32,
        _: u64,
        _: u32,
        _: Advice,
        _: &mut RaState,
    ) -> Done {
        cx.spend(100);
        Ok(())
    }
}
