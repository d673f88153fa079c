//! A machine on which zram's and zswap's tests swap.

use lotsfree_workload::{Policy, RegionId};

use super::super::zram::ZramConfig;
use super::super::{Config, Cx, Done, Fault, Kswapd, Mm, Stop, ZswapConfig, ZswapWorker};
use crate::Generation;

pub(in crate::mm) const HEAP: RegionId = RegionId(0);
/// Pages of memory.
pub(in crate::mm) const MEMORY: u32 = 1 << 14;

/// What compresses swap.
pub(in crate::mm) struct Compressed {
    zram: Option<ZramConfig>,
    zswap: Option<ZswapConfig>,
}

impl From<ZramConfig> for Compressed {
    fn from(zram: ZramConfig) -> Self {
        Compressed { zram: Some(zram), zswap: None }
    }
}

impl From<ZswapConfig> for Compressed {
    fn from(zswap: ZswapConfig) -> Self {
        Compressed { zram: None, zswap: Some(zswap) }
    }
}

/// A machine of 64 MiB with twice that of compressed swap, a program, kswapd and zswap's worker.
pub(in crate::mm) struct Host {
    pub(in crate::mm) mm: Mm,
    pub(in crate::mm) cx: Cx,
    kswapd: (Cx, Kswapd),
    pub(in crate::mm) worker: (Cx, ZswapWorker),
}

impl Host {
    /// `compressed` turns zram or zswap on.
    pub(in crate::mm) fn new(kernel: &str, compressed: impl Into<Compressed>) -> Self {
        let Compressed { zram, zswap } = compressed.into();
        let mut mm = Mm::new(&Config {
            swap_pages: 2 * u64::from(MEMORY),
            kernel_pages: Some(vec![300]),
            zram,
            zswap,
            ..Config::new(Generation::named(kernel).unwrap(), vec![MEMORY.into()])
        });
        let (process, task) = (mm.create_process(Policy::Local), mm.create_task());
        let mut cx = Cx::new(task, 0, process, 1);
        mm.map_anon(&mut cx, HEAP, 2 * MEMORY).unwrap();
        let mut kernel_task = || Cx::new(mm.create_task(), 0, usize::MAX, 1);
        let (kswapd, worker) = (kernel_task(), kernel_task());
        Host { mm, cx, kswapd: (kswapd, Kswapd::new(0)), worker: (worker, ZswapWorker::default()) }
    }

    /// A machine that has written this number of pages, each once.
    pub(in crate::mm) fn written(kernel: &str, compressed: impl Into<Compressed>, pages: u32) -> Self {
        let mut host = Host::new(kernel, compressed);
        assert_eq!((0..pages).try_for_each(|page| host.touch(page, true)), Ok(()), "{kernel}");
        assert_eq!(host.mm.check(), Ok(()), "{kernel}");
        host
    }

    pub(in crate::mm) fn touch(&mut self, page: u32, write: bool) -> Done {
        let mut fault = Fault::new(HEAP, page, write);
        for _ in 0..1000 {
            match fault.poll(&mut self.mm, &mut self.cx) {
                Err(Stop::Wait(_)) => self.others(),
                done => return done,
            }
        }
        panic!("page {page} does not come");
    }

    /// Lets the kernel's tasks run, and the device answer.
    pub(in crate::mm) fn others(&mut self) {
        let now = self.cx.now();
        let (cx, kswapd) = &mut self.kswapd;
        (cx.start, cx.spent) = (now, 0);
        kswapd.poll(&mut self.mm, cx);
        let (cx, worker) = &mut self.worker;
        (cx.start, cx.spent) = (now, 0);
        worker.poll(&mut self.mm, cx);
        let ids: Vec<u64> = self.mm.take_io().map(|io| io.id).collect();
        ids.into_iter().for_each(|id| self.mm.complete(id, now));
        (self.cx.start, self.cx.spent) = (now + 1_000_000, 0);
    }

    pub(in crate::mm) fn used(&self) -> u64 {
        u64::from(self.mm.swap.total) - self.mm.swap.free()
    }
}
