//! tmp
use super::*;
impl Mm {
    pub(crate) fn node_reclaim(&mut self, _cx: &mut Cx, _z: usize) -> bool {
        false
    }
}
