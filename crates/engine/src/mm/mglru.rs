//! tmp
use super::vmscan::Scan;
use super::*;
#[derive(Debug, Default)]
pub(crate) struct Generations {}
impl Generations {
    pub(crate) fn list_for_new(&self, _a: bool, _m: bool) -> usize {
        1
    }
    pub(crate) fn evicted(&mut self, _a: bool, _f: &Frame) -> u64 {
        1
    }
    pub(crate) fn refaulted(&mut self, _a: bool, _v: u32, _b: u32) -> bool {
        false
    }
    pub(crate) fn oldest_list(&self, _k: usize) -> usize {
        6
    }
}
impl Mm {
    pub(crate) fn lru_gen_shrink_lruvec(
        &mut self,
        _cx: &mut Cx,
        _s: &mut Scan,
        _l: usize,
    ) -> Result<(), Wait> {
        Ok(())
    }
    pub(crate) fn lru_gen_initial_priority(&self, _n: usize) -> u8 {
        12
    }
    pub(crate) fn lru_gen_enough(&self, _n: usize) -> bool {
        false
    }
}
