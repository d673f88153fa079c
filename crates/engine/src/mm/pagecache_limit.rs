//! tmp
use super::*;
impl Mm {
    pub(crate) fn pagecache_limit(&mut self, _cx: &mut Cx) {}
    pub(crate) fn pagecache_limit_kswapd(&mut self, _cx: &mut Cx) {}
}
