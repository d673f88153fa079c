//! [`Calibration`]: what the kernel's work costs in time.

/// CPU times in nanoseconds. Where no source gives a figure the value is an estimate of its order (marked
/// so); scenarios may override each, and a measured record takes the place of the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Name of the record.
    pub name: &'static str,
    /// Load or store of a resident page by a program: TLB and cache miss (estimate).
    pub touch: u64,
    /// Entry to and exit from the kernel (estimate).
    pub syscall: u64,
    /// A minor fault without allocation, zeroing and copying. With 250 ns for a zeroed page and 150 ns for
    /// its allocation the sum is the 1.0 µs that is the published median of Linux 6.6 on an 11th generation
    /// i7.
    pub fault: u64,
    /// Allocation of one page from a CPU's list (estimate).
    pub alloc: u64,
    /// Zeroing a page (estimate: 16 GB/s).
    pub zero: u64,
    /// Copying a page between the page cache and a program (estimate: 5 GB/s with the accounting around it).
    pub copy: u64,
    /// Taking one page off an LRU list, looking at it and putting it back (estimate; section 13.4).
    pub scan: u64,
    /// Finding out through the reverse mapping whether a mapped page was accessed, or unmapping it
    /// (estimate).
    pub rmap: u64,
    /// Freeing a page.
    pub free: u64,
    /// Preparing one request for a device (estimate).
    pub submit: u64,
    /// Waking up a sleeping task, until it runs.
    pub wakeup: u64,
    /// MGLRU: looking at one page-table entry while page tables are walked in order (estimate).
    pub walk: u64,
}

impl Default for Calibration {
    fn default() -> Self {
        Calibration {
            name: "default",
            touch: 100,
            syscall: 200,
            fault: 600,
            alloc: 150,
            zero: 250,
            copy: 800,
            scan: 100,
            rmap: 200,
            free: 100,
            submit: 3000,
            wakeup: 3000,
            walk: 3,
        }
    }
}

impl Calibration {
    /// The costs by name, for scenarios and run directories.
    pub fn entries(&self) -> [(&'static str, u64); 12] {
        [
            ("touch", self.touch),
            ("syscall", self.syscall),
            ("fault", self.fault),
            ("alloc", self.alloc),
            ("zero", self.zero),
            ("copy", self.copy),
            ("scan", self.scan),
            ("rmap", self.rmap),
            ("free", self.free),
            ("submit", self.submit),
            ("wakeup", self.wakeup),
            ("walk", self.walk),
        ]
    }

    /// Sets one cost, in nanoseconds. `Err` names the costs that there are.
    pub fn set(&mut self, name: &str, ns: u64) -> Result<(), String> {
        let cost = match name {
            "touch" => &mut self.touch,
            "syscall" => &mut self.syscall,
            "fault" => &mut self.fault,
            "alloc" => &mut self.alloc,
            "zero" => &mut self.zero,
            "copy" => &mut self.copy,
            "scan" => &mut self.scan,
            "rmap" => &mut self.rmap,
            "free" => &mut self.free,
            "submit" => &mut self.submit,
            "wakeup" => &mut self.wakeup,
            "walk" => &mut self.walk,
            _ => {
                let names = self.entries().map(|(name, _)| name).join(", ");
                return Err(format!("no cost is named {name:?}; there are {names}"));
            }
        };
        *cost = ns;
        Ok(())
    }
}
