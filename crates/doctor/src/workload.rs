//! [`Workload`]: the server programs that vendors write memory advice for.

use lotsfree_kernel_files::file::process::Process;
use schemars::JsonSchema;
use serde::Serialize;

/// A server program, recognised by the names of its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Oracle Database (`ora_pmon_SID`, `asm_pmon_+ASM`, `oracle_PID_SID`).
    Oracle,
    /// SAP HANA (`hdbindexserver`, `hdbnameserver`).
    Hana,
    /// SAP NetWeaver application server (`disp+work`, `sapstartsrv`, `dw.sap*`).
    Sap,
    /// PostgreSQL (`postgres`, `postmaster`).
    Postgres,
    /// MySQL or MariaDB (`mysqld`, `mariadbd`).
    Mysql,
    /// Microsoft SQL Server (`sqlservr`).
    Mssql,
    /// IBM Db2 (`db2sysc`).
    Db2,
    /// SAP ASE (`dataserver`).
    Ase,
    /// MongoDB (`mongod`).
    Mongo,
    /// Redis or Valkey (`redis-server`, `valkey-server`).
    Redis,
    /// Couchbase (`memcached` beside `beam.smp` and a program of its own: RabbitMQ and memcached share a host
    /// too).
    Couchbase,
    /// TiDB (`tikv-server`, `tidb-server`).
    Tidb,
    /// Any Java virtual machine (`java`).
    Java,
    /// KVM guests (`qemu-system-*`, `qemu-kvm`, Proxmox' `kvm`).
    Kvm,
    /// DPDK (`dpdk-*`, `testpmd`, `ovs-vswitchd`, `vpp_main`).
    Dpdk,
}

impl Workload {
    /// Workloads among `processes`, each once, sorted.
    pub fn detect(processes: &[Process]) -> Vec<Workload> {
        let mut found: Vec<Workload> =
            processes.iter().filter_map(|process| Workload::of_name(&process.stat.name)).collect();
        let has = |name: &str| processes.iter().any(|p| &*p.stat.name == name);
        let own = ["goport", "goxdcr", "projector", "indexer", "cbq-engine", "saslauthd-port"];
        if has("memcached") && has("beam.smp") && own.into_iter().any(has) {
            found.push(Workload::Couchbase);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The workload that a process name (`comm`, at most 15 bytes) belongs to.
    pub fn of_name(name: &str) -> Option<Workload> {
        const EXACT: &[(&str, Workload)] = &[
            ("postgres", Workload::Postgres),
            ("postmaster", Workload::Postgres),
            ("mysqld", Workload::Mysql),
            ("mariadbd", Workload::Mysql),
            ("sqlservr", Workload::Mssql),
            ("db2sysc", Workload::Db2),
            ("dataserver", Workload::Ase),
            ("mongod", Workload::Mongo),
            ("redis-server", Workload::Redis),
            ("valkey-server", Workload::Redis),
            ("tikv-server", Workload::Tidb),
            ("tidb-server", Workload::Tidb),
            ("java", Workload::Java),
            ("testpmd", Workload::Dpdk),
            ("ovs-vswitchd", Workload::Dpdk),
            ("vpp_main", Workload::Dpdk),
            ("disp+work", Workload::Sap),
            ("sapstartsrv", Workload::Sap),
            ("qemu-kvm", Workload::Kvm),
            ("kvm", Workload::Kvm),
        ];
        /// Beginnings of names of clients and agents that look like a server's.
        const OTHERS: &[&str] = &["oracle-", "oracle_cloud", "hdbsql", "hdbuserstore", "hdbbackint"];
        const PREFIX: &[(&str, Workload)] = &[
            ("ora_", Workload::Oracle),
            ("asm_", Workload::Oracle),
            ("oracle", Workload::Oracle),
            ("hdb", Workload::Hana),
            ("dw.sap", Workload::Sap),
            // `qemu-ga` is not included: that agent runs inside guests.
            ("qemu-system-", Workload::Kvm),
            ("dpdk-", Workload::Dpdk),
        ];
        if OTHERS.iter().any(|other| name.starts_with(other)) {
            return None;
        }
        EXACT
            .iter()
            .find(|(exact, _)| *exact == name)
            .or_else(|| PREFIX.iter().find(|(prefix, _)| name.starts_with(prefix)))
            .map(|(_, workload)| *workload)
    }

    /// The database that a process belongs to, if any.
    pub fn database_of(process: &Process) -> Option<Workload> {
        Workload::of_name(&process.stat.name).filter(|workload| workload.is_database())
    }

    /// Name in running text.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Oracle => "Oracle Database",
            Workload::Hana => "SAP HANA",
            Workload::Sap => "SAP NetWeaver",
            Workload::Postgres => "PostgreSQL",
            Workload::Mysql => "MySQL",
            Workload::Mssql => "SQL Server",
            Workload::Db2 => "Db2",
            Workload::Ase => "SAP ASE",
            Workload::Mongo => "MongoDB",
            Workload::Redis => "Redis",
            Workload::Couchbase => "Couchbase",
            Workload::Tidb => "TiDB",
            Workload::Java => "Java",
            Workload::Kvm => "KVM",
            Workload::Dpdk => "DPDK",
        }
    }

    /// Whether it is a database whose pages should stay resident.
    pub fn is_database(self) -> bool {
        !matches!(self, Workload::Java | Workload::Kvm | Workload::Dpdk | Workload::Sap)
    }
}

/// Cluster managers, by process name: Pacemaker, Corosync, SBD, Heartbeat, Oracle Clusterware, Veritas
/// Cluster Server, Serviceguard.
pub(crate) const CLUSTER_MANAGERS: &[&str] =
    &["pacemakerd", "corosync", "sbd", "heartbeat", "ocssd.bin", "crsd.bin", "ohasd.bin", "had", "cmcld"];

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(names: &[&str]) -> Vec<Workload> {
        let process = |name: &&str| {
            let mut process = Process::default();
            process.stat.name = (*name).into();
            process
        };
        Workload::detect(&names.iter().map(process).collect::<Vec<_>>())
    }

    #[test]
    fn agents_and_clients_are_no_servers() {
        // The guest agent of KVM, Oracle Cloud's agent (which any image there has), clients of SAP HANA.
        let names = ["qemu-ga", "qemu-pr-helper", "qemu-nbd", "oracle-cloud-ag", "hdbsql", "hdbuserstore"];
        assert_eq!(detect(&names), []);
        assert_eq!(detect(&["qemu-system-x86"]), [Workload::Kvm]);
        assert_eq!(detect(&["kvm", "qemu-kvm"]), [Workload::Kvm]);
        assert_eq!(detect(&["oracle_2029_or", "oracle", "oracleORCL", "ora_pmon_ORCL"]), [Workload::Oracle]);
        assert_eq!(detect(&["hdbindexserver", "hdbnameserver"]), [Workload::Hana]);
    }

    #[test]
    fn rabbitmq_beside_memcached_is_no_couchbase() {
        assert_eq!(detect(&["beam.smp", "memcached"]), []);
        assert_eq!(detect(&["beam.smp", "memcached", "goxdcr", "projector"]), [Workload::Couchbase]);
    }
}
