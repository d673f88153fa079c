//! What an application has to be told itself, beside what its host is told, and how it says that it has it:
//! the settings of `docs/recipes.md` as a table. PostgreSQL, Oracle, Java and MySQL take huge pages by
//! settings that `huge::adopted` knows.

use lotsfree_kernel_files::file::process::Process;

use crate::control_groups::{largest_in, service_of};
use crate::{Context, Remedy};

/// A program with a setting of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Application {
    Redis,
    Valkey,
    Memcached,
    Mongo,
    Elasticsearch,
    OpenSearch,
    Qemu,
    Dpdk,
}

use Application::{Dpdk, Elasticsearch, Memcached, Mongo, OpenSearch, Qemu, Redis, Valkey};

/// What a remedy changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The huge page pool.
    Pool,
    /// Transparent huge pages.
    Thp,
    /// Memory that is kept out of swap by locking it.
    Locked,
    /// The limit of the control group that it runs in.
    Limit,
    /// `vm.overcommit_memory`.
    Overcommit,
}

/// What an application needs of its own beside a remedy.
struct Own {
    application: Application,
    topic: Topic,
    /// Its configuration file and the line for it; empty where it has none.
    setting: (&'static str, &'static str),
    /// What has to be restarted, and what that shows.
    restart: &'static str,
    /// The command that shows whether it took effect.
    verify: &'static str,
}

const MLOCKALL: &str = "curl -s 'localhost:9200/_nodes?filter_path=**.mlockall'  # true";

/// One row for each application and topic; which of them were tried says `docs/recipes.md`.
const TABLE: &[Own] = &[
    Own {
        application: Qemu,
        topic: Topic::Pool,
        setting: ("the guest's definition (virsh edit GUEST)", "<memoryBacking><hugepages/></memoryBacking>"),
        restart: "the guest, shut down and started anew; it does not start where the pool is too small",
        verify: "grep HugetlbPages /proc/$(pgrep -n qemu)/status",
    },
    Own {
        application: Dpdk,
        topic: Topic::Pool,
        setting: ("", ""),
        restart: "the DPDK program, whose environment layer says at its start which pages it got",
        verify: "grep HugePages_ /sys/devices/system/node/node*/meminfo  # enough on the node of each of its threads",
    },
    Own {
        application: Redis,
        topic: Topic::Thp,
        setting: ("redis.conf", "disable-thp yes"),
        restart: "Redis, 6.2 or later; what is in huge pages stays there until then",
        verify: "grep THP_enabled /proc/$(pgrep -n redis-server)/status  # 0; Redis asks for it only while the mode is always",
    },
    Own {
        application: Valkey,
        topic: Topic::Thp,
        setting: ("valkey.conf", "disable-thp yes"),
        restart: "Valkey; what is in huge pages stays there until then",
        verify: "grep THP_enabled /proc/$(pgrep -n valkey-server)/status  # 0; Valkey asks for it only while the mode is always",
    },
    Own {
        application: Memcached,
        topic: Topic::Thp,
        setting: ("the command line of memcached", "-L"),
        restart: "memcached, whose keys are gone then; without -L it asks for no huge pages",
        verify: "grep AnonHugePages /proc/$(pgrep -n memcached)/smaps_rollup",
    },
    Own {
        application: Mongo,
        topic: Topic::Thp,
        setting: ("", ""),
        restart: "mongod",
        verify: "mongosh --quiet --eval 'db.adminCommand({getLog: \"startupWarnings\"})'  # none of huge pages",
    },
    Own {
        application: Elasticsearch,
        topic: Topic::Locked,
        setting: ("elasticsearch.yml", "bootstrap.memory_lock: true"),
        restart: "Elasticsearch; it does not start where it may not lock its heap",
        verify: MLOCKALL,
    },
    Own {
        application: OpenSearch,
        topic: Topic::Locked,
        setting: ("opensearch.yml", "bootstrap.memory_lock: true"),
        restart: "OpenSearch; it does not start where it may not lock its heap",
        verify: MLOCKALL,
    },
    Own {
        application: Redis,
        topic: Topic::Limit,
        setting: ("redis.conf, a tenth below the group's limit", "maxmemory SIZE"),
        restart: "",
        verify: "redis-cli INFO memory | grep -E 'used_memory_rss_human|maxmemory_human'",
    },
    Own {
        application: Valkey,
        topic: Topic::Limit,
        setting: ("valkey.conf, a tenth below the group's limit", "maxmemory SIZE"),
        restart: "",
        verify: "valkey-cli INFO memory | grep -E 'used_memory_rss_human|maxmemory_human'",
    },
    Own {
        application: Memcached,
        topic: Topic::Limit,
        setting: ("the command line of memcached, a tenth below the group's limit", "-m MIB"),
        restart: "",
        verify: "exec 3<>/dev/tcp/localhost/11211; printf 'stats\\r\\nquit\\r\\n' >&3; grep -E 'evictions|limit_maxbytes' <&3",
    },
    Own {
        application: Redis,
        topic: Topic::Overcommit,
        setting: ("", ""),
        restart: "",
        verify: "redis-cli INFO persistence | grep rdb_last_bgsave_status  # ok, after a BGSAVE",
    },
    Own {
        application: Valkey,
        topic: Topic::Overcommit,
        setting: ("", ""),
        restart: "",
        verify: "valkey-cli INFO persistence | grep rdb_last_bgsave_status  # ok, after a BGSAVE",
    },
];

impl Application {
    /// The application that a process belongs to. Elasticsearch and OpenSearch are told by their service:
    /// their processes are called `java`.
    pub(crate) fn of(process: &Process) -> Option<Application> {
        if &*process.stat.name == "java" {
            let service = service_of(process)?;
            let known = [("elasticsearch", Elasticsearch), ("opensearch", OpenSearch)];
            return known.into_iter().find(|(name, _)| service.starts_with(name)).map(|(_, found)| found);
        }
        Application::of_name(&process.stat.name)
    }

    /// The application that a process of this name, or a program that calls itself so, belongs to.
    pub(crate) fn of_name(name: &str) -> Option<Application> {
        let found = match name {
            "redis-server" => Redis,
            "valkey-server" => Valkey,
            "memcached" => Memcached,
            "mongod" => Mongo,
            "Elasticsearch" => Elasticsearch,
            "OpenSearch" => OpenSearch,
            "qemu-kvm" | "kvm" => Qemu,
            "testpmd" | "ovs-vswitchd" | "vpp_main" => Dpdk,
            name if name.starts_with("qemu-system-") => Qemu,
            name if name.starts_with("dpdk-") => Dpdk,
            _ => return None,
        };
        Some(found)
    }

    /// Its name in running text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Redis => "Redis",
            Valkey => "Valkey",
            Memcached => "memcached",
            Mongo => "MongoDB",
            Elasticsearch => "Elasticsearch",
            OpenSearch => "OpenSearch",
            Qemu => "QEMU",
            Dpdk => "DPDK",
        }
    }

    /// Adds to `remedy` what the application has to be told itself, what to restart for it, and the command
    /// that shows whether it took effect.
    pub(crate) fn tell(self, topic: Topic, remedy: Remedy) -> Remedy {
        let own = TABLE.iter().find(|own| own.application == self && own.topic == topic);
        let Some(Own { setting: (file, line), restart, verify, .. }) = own else { return remedy };
        let mut remedy = if file.is_empty() { remedy } else { remedy.keep(file, *line) };
        if !restart.is_empty() {
            remedy = remedy.restart(*restart);
        }
        remedy.verify(*verify)
    }
}

/// Adds to `remedy` what the application that a process belongs to has to be told itself.
pub(crate) fn told(process: &Process, topic: Topic, remedy: Remedy) -> Remedy {
    match Application::of(process) {
        Some(application) => application.tell(topic, remedy),
        None => remedy,
    }
}

/// The applications of the table that run here, each once.
pub(crate) fn running(cx: &Context<'_>) -> Vec<Application> {
    let mut found = Vec::new();
    for application in cx.processes().unwrap_or_default().iter().filter_map(Application::of) {
        if !found.contains(&application) {
            found.push(application);
        }
    }
    found
}

/// The application of the largest process in the memory cgroup `path` or below it, if the table has it.
pub(crate) fn in_group(cx: &Context<'_>, path: &str) -> Option<Application> {
    let (process, _) = largest_in(cx, path, 1).into_iter().next()?;
    Application::of(process)
}

#[cfg(test)]
mod tests {
    use lotsfree_kernel_files::file::process::Detail;

    use super::*;

    #[test]
    fn elasticsearch_is_a_java_process_of_its_service() {
        let java = |service: &str| {
            let mut process = Process::default();
            process.stat.name = "java".into();
            let cgroup = Some(format!("/system.slice/{service}"));
            process.detail = Some(Box::new(Detail { cgroup, ..Detail::default() }));
            Application::of(&process)
        };
        assert_eq!(java("elasticsearch.service"), Some(Elasticsearch));
        assert_eq!(java("opensearch.service"), Some(OpenSearch));
        assert_eq!(java("tomcat.service"), None);
        assert_eq!(Application::of(&Process::default()), None);
    }

    #[test]
    fn each_row_is_told_with_its_verification() {
        for (at, own) in TABLE.iter().enumerate() {
            let same = |other: &Own| other.application == own.application && other.topic == own.topic;
            assert_eq!(TABLE.iter().position(same), Some(at), "two rows for {}", own.application.name());
            let told = own.application.tell(own.topic, Remedy::new("test"));
            assert_eq!(told.verify, [own.verify]);
            assert_eq!(told.restart.is_some(), !own.restart.is_empty());
            assert_eq!(told.persistent.is_empty(), own.setting.0.is_empty());
        }
        let told = Qemu.tell(Topic::Limit, Remedy::new("test"));
        assert_eq!(told, Remedy::new("test"));
    }
}
