//! Names of processes: `comm`, as in `stat`, `status` and the kernel log.
//!
//! A name stays if the whole of it is a listed program. Rules also recognise some programs by the beginning
//! of their names; that beginning stays and the rest is replaced:
//!
//! | name | kept as |
//! |---|---|
//! | `ora_pmon_SID`, `asm_lgwr_+ASM1` | `ora_pmon_sid1`, `asm_lgwr_+ASM1` |
//! | `oracleSID`, `oracle_PID_SID` | `oraclesid1`, `oracle_PID_sid1` |
//! | `dw.sapSID_…` | `dw.sapsid1` |
//! | `hdbNAME`, `qemu-system-ARCH`, `dpdk-NAME` | `hdbprogram1`, `qemu-system-program1` unless ARCH is one, `dpdk-program1` |
//! | `kworker/u8:2-NAME`, `jbd2/DEVICE` | `kworker/u8:2`, `jbd2` |

use super::lists::{KERNEL_THREADS, ORACLE, PROGRAMS};
use super::names::Names;
use super::words::{is_decimal, normalized};

/// Names that begin like a server's but belong to something else (`Workload::of_name` of the doctor).
const OTHERS: [&str; 2] = ["oracle-", "oracle_cloud"];
/// Words after `qemu-system-` that stay, cut to the 15 bytes that `comm` holds.
const MACHINES: [&str; 8] = ["x86_64", "x86", "aar", "aarch64", "ppc", "ppc64", "s39", "s390x"];

impl Names {
    /// Redacts a process's name.
    pub(super) fn program(&mut self, name: &str) -> String {
        if PROGRAMS.has(name) || is_kernel_thread_form(name) {
            return name.to_owned();
        }
        if let Some(oracle) = self.oracle(name) {
            return oracle;
        }
        if let Some(sid) = name.strip_prefix("dw.sap") {
            return format!("dw.sap{}", self.token("sid", sid));
        }
        if let Some(machine) = name.strip_prefix("qemu-system-")
            && MACHINES.contains(&machine)
        {
            return name.to_owned();
        }
        // `hdbsql` and similar clients are listed; a longer name that begins with one of them is a client
        // too.
        for client in ["hdbsql", "hdbuserstore", "hdbbackint"] {
            if name.starts_with(client) {
                return format!("{client}-{}", self.token("program", name));
            }
        }
        for start in ["hdb", "qemu-system-", "dpdk-"] {
            if let Some(rest) = name.strip_prefix(start) {
                return format!("{start}{}", self.token("program", rest));
            }
        }
        if let Some(thread) = cut_kernel_thread(name) {
            return thread.to_owned();
        }
        self.token("program", name)
    }

    /// Redacts the name of a process that is known to be a kernel thread. Modules name their own threads.
    pub(super) fn kernel_thread(&mut self, name: &str) -> String {
        if is_kernel_thread_form(name) {
            return name.to_owned();
        }
        match cut_kernel_thread(name) {
            Some(thread) => thread.to_owned(),
            None => self.token("kthread", name),
        }
    }

    /// Redacts the identifier of an Oracle instance. Those of its storage manager are always the same, and
    /// stay.
    pub(super) fn sid(&mut self, sid: &str) -> String {
        if matches!(&*normalized(sid), "+ASM" | "+ASM#" | "+APX" | "+APX#") {
            sid.to_owned()
        } else {
            self.token("sid", sid)
        }
    }

    fn oracle(&mut self, name: &str) -> Option<String> {
        for start in ["ora_", "asm_"] {
            let Some(rest) = name.strip_prefix(start) else { continue };
            return Some(match rest.split_once('_') {
                Some((kind, sid)) if ORACLE.has(kind) => format!("{start}{kind}_{}", self.sid(sid)),
                _ => format!("{start}{}", self.sid(rest)),
            });
        }
        let rest = name.strip_prefix("oracle")?;
        if OTHERS.iter().any(|other| name.starts_with(other)) {
            return None;
        }
        let of_process = rest.strip_prefix('_').and_then(|rest| rest.split_once('_'));
        Some(match of_process {
            Some((pid, sid)) if is_decimal(pid) => format!("oracle_{pid}_{}", self.sid(sid)),
            _ => format!("oracle{}", self.sid(rest)),
        })
    }
}

fn is_kernel_thread_form(name: &str) -> bool {
    KERNEL_THREADS.has(name)
}

/// The part of a kernel thread's name that says what it is, without the device or name that it works for. A
/// user's process with such a name is cut in the same way.
fn cut_kernel_thread(name: &str) -> Option<&str> {
    for start in ["jbd2", "xfsaild"] {
        if name.strip_prefix(start).is_some_and(|rest| rest.starts_with('/')) {
            return Some(start);
        }
    }
    let worker = name.strip_prefix("kworker/")?;
    let end = "kworker/".len() + worker.find(['-', '+']).unwrap_or(worker.len());
    is_kernel_thread_form(&name[..end]).then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_stay_only_as_a_whole() {
        let mut names = Names::default();
        for name in [
            "postgres",
            "java",
            "hdbindexserver",
            "qemu-system-x86",
            "qemu-kvm",
            "kswapd0",
            "kworker/u8:2",
            "rcu_gp",
            "cp",
            "python3.11",
            "md5sum",
        ] {
            assert_eq!(names.program(name), name);
        }
        for name in [
            "postgres-acme",
            "javaAcme",
            "rcu_acme",
            "kworker/acme",
            "kswapd0acme",
            "acme (x) [y] z",
            "Postgres",
            "oracle-acme",
            "oracle_cloud_acme",
        ] {
            let kept = names.program(name);
            assert!(kept.starts_with("program"), "{name} became {kept}");
        }
        assert_eq!(names.program("postgres-acme"), "program1");
    }

    #[test]
    fn beginnings_that_rules_know_stay() {
        let mut names = Names::default();
        for (name, kept) in [
            ("ora_pmon_ACME", "ora_pmon_sid1"),
            ("ora_acme_ACME", "ora_sid2"),
            ("asm_pmon_+ASM1", "asm_pmon_+ASM1"),
            ("oracleACME", "oraclesid1"),
            ("oracle_99_ACME", "oracle_99_sid1"),
            ("oracle_acme_ACME", "oraclesid3"),
            ("dw.sapACM_D00", "dw.sapsid4"),
            ("hdbacme", "hdbprogram1"),
            ("qemu-system-acm", "qemu-system-program2"),
            ("dpdk-acme", "dpdk-program1"),
            ("hdbsql-acme", "hdbsql-program3"),
            ("kworker/0:1-acme", "kworker/0:1"),
            ("jbd2/acme-8", "jbd2"),
        ] {
            assert_eq!(names.program(name), kept, "{name}");
        }
        assert_eq!(names.kernel_thread("acme-wq"), "kthread1");
        assert_eq!(names.kernel_thread("kcompactd1"), "kcompactd1");
    }
}
