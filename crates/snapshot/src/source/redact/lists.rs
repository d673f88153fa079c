//! The words that may stay, per kind of file: the kernel's own, and names that say nothing about who runs
//! them.
//!
//! Names are compared whole; a run of digits is written `#`. To let another word stay, add it here.

use super::words::Words;

/// Zones, nodes and the fields of `zoneinfo`, `buddyinfo` and `pagetypeinfo` that are not counters.
pub(super) static ZONES: Words = Words::new(&[
    "Node zone per-node stats pages pagesets cpu count high high_min high_max batch vm threshold min",
    "low boost",
    "promo spanned present managed cma protection free scanned aa all_unreclaimable start_pfn inactive_ratio",
    "node_unreclaimable prev_priority temp_priority node_inactive_ratio start_cpu DMA DMA# Normal",
    "HighMem Movable",
    "Device Page Pages block order per Free count migrate type at Number of blocks Mixed Unmovable",
    "Reclaimable",
    "Movable Reserve HighAtomic CMA Isolate",
]);

/// Units that follow a number, after a space or directly.
pub(super) static UNITS: Words = Words::new(&["kB #kB"]);

/// Words of `/proc/pressure` and `memory.pressure`.
pub(super) static PRESSURE: Words = Words::new(&["some full avg# total"]);

/// The header of `/proc/sysvipc/shm`.
pub(super) static SHM: Words =
    Words::new(&["key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap"]);

/// Words of the lines of `/proc/PID/limits` and `/proc/PID/io`.
pub(super) static PROCESS: Words = Words::new(&[
    "Limit Soft Hard Units Max cpu time file size data stack core resident set processes open files",
    "locked memory",
    "address space locks pending signals msgqueue nice priority realtime timeout unlimited seconds bytes us",
    "rchar wchar syscr syscw read_bytes write_bytes cancelled_write_bytes",
]);

/// Values of settings of the kernel's memory management.
pub(super) static CHOICES: Words = Words::new(&[
    "always madvise never inherit auto advise within_size deny force defer defer+madvise Y N Node Zone",
    "Default",
    "node zone default lzo lzo-rle lz4 lz4hc zstd deflate 842 zbud z3fold zsmalloc max",
]);

/// Controllers, and the fields of control files that are not counters.
pub(super) static CONTROL: Words = Words::new(&[
    "cpuset cpu io memory hugetlb pids rdma misc dmem max oom_kill_disable under_oom oom_kill nr_descendants",
    "nr_dying_descendants nr_subsys_cpuset nr_subsys_cpu nr_subsys_io nr_subsys_memory nr_subsys_hugetlb",
    "nr_subsys_pids nr_subsys_rdma nr_subsys_misc nr_subsys_dmem nr_subsys_perf_event nr_subsys_net_cls",
    "nr_dying_subsys_cpuset nr_dying_subsys_cpu nr_dying_subsys_io nr_dying_subsys_memory",
    "nr_dying_subsys_hugetlb nr_dying_subsys_pids nr_dying_subsys_rdma nr_dying_subsys_misc",
    "nr_dying_subsys_dmem nr_dying_subsys_perf_event",
]);

/// Controllers and hierarchies in `/proc/PID/cgroup`.
pub(super) static CONTROLLERS: Words = Words::new(&[
    "cpuset cpu cpuacct io blkio memory devices freezer net_cls net_prio perf_event hugetlb pids rdma misc",
    "dmem debug name=systemd name=elogind name=openrc",
]);

/// Sysctls below `vm.` that the collector reads or that a file may set, without the `vm.`.
pub(super) static VM: Words = Words::new(&[
    "admin_reserve_kbytes anon_min_ratio block_dump clean_low_ratio clean_min_ratio compact_memory",
    "compact_unevictable_allowed compaction_proactiveness defrag_mode dirty_background_bytes",
    "dirty_background_ratio dirty_bytes dirty_expire_centisecs dirty_ratio dirty_writeback_centisecs",
    "dirtytime_expire_seconds drop_caches enable_soft_offline extfrag_threshold extra_free_kbytes",
    "force_cgroup_v2_swappiness highmem_is_dirtyable hugepages_treat_as_movable hugetlb_optimize_vmemmap",
    "hugetlb_shm_group laptop_mode legacy_va_layout lowmem_reserve_ratio max_map_count",
    "max_user_map_count meminfo_legacy_layout memfd_noexec memory_failure_early_kill memory_failure_recovery",
    "min_free_kbytes min_slab_ratio min_unmapped_ratio mmap_min_addr mmap_rnd_bits mmap_rnd_compat_bits",
    "movable_gigantic_pages nr_hugepages nr_hugepages_mempolicy nr_overcommit_hugepages nr_pdflush_threads",
    "nr_trim_pages numa_stat numa_zonelist_order oom_dump_tasks oom_kill_allocating_task overcommit_kbytes",
    "overcommit_memory overcommit_ratio page-cluster page_cluster page_lock_unfairness panic_on_oom",
    "percpu_pagelist_fraction percpu_pagelist_high_fraction pagecache_limit_async",
    "pagecache_limit_ignore_dirty",
    "pagecache_limit_ignore_slab pagecache_limit_mb pagecache_limit_reclaim_background",
    "scan_unevictable_pages",
    "shrink_inodes_with_pagecache soft_offline_dissolve stat_interval stat_refresh swap_token_timeout",
    "swappiness topdown_allocation_fast unmap_area_factor unprivileged_userfaultfd user_reserve_kbytes",
    "vdso_enabled vfs_cache_pressure vfs_cache_pressure_denom watermark_boost_factor watermark_scale_factor",
    "would_have_oomkilled workingset_protection zone_reclaim_interval zone_reclaim_mode",
]);

/// Sysctls of other directories of `/proc/sys` that the collector reads or that a file may set, with dots.
/// Their values are numbers.
pub(super) static SYSCTLS: Words = Words::new(&[
    "fs.aio-max-nr fs.aio-nr fs.dentry-state fs.file-max fs.file-nr fs.inode-nr fs.inode-state fs.nr_open",
    "fs.procfs-drop-fd-dentries kernel.hung_task_timeout_secs kernel.msgmax kernel.msgmnb kernel.msgmni",
    "kernel.numa_balancing kernel.numa_balancing_promote_rate_limit_MBps",
    "kernel.numa_balancing_scan_delay_ms kernel.numa_balancing_scan_period_max_ms",
    "kernel.numa_balancing_scan_period_min_ms kernel.numa_balancing_scan_size_mb",
    "kernel.numa_balancing_settle_count kernel.panic kernel.panic_on_io_nmi kernel.panic_on_oops",
    "kernel.panic_on_unrecovered_nmi kernel.pid_max kernel.sched_rt_runtime_us kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall kernel.shmmax kernel.shmmni kernel.sysrq kernel.threads-max",
    "net.core.rmem_default net.core.rmem_max net.core.wmem_default net.core.wmem_max net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.udp_mem",
]);

/// Lines of decimal numbers in `/proc/PID/status`, other than counters.
pub(super) static STATUS: Words = Words::new(&[
    "Tgid Ngid Pid PPid TracerPid Uid Gid FDSize Kthread CoreDumping THP_enabled Threads SigQ Umask",
    "NoNewPrivs Seccomp Mems_allowed_list Cpus_allowed_list voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
]);

/// Lines of one hexadecimal number in `/proc/PID/status`.
pub(super) static STATUS_HEX: Words = Words::new(&["CapInh CapPrm CapEff CapBnd CapAmb"]);

/// States of a process in `/proc/PID/status`.
pub(super) static STATES: Words = Words::new(&[
    "R S D T t X x Z P I K W (running) (sleeping) (disk sleep) (stopped) (tracing stop) (dead) (zombie)",
    "(parked)",
    "(idle) sleep) stop) stop",
]);

/// Words of `numa_maps`: those before `=`, and those without a value.
pub(super) static MAPPINGS: Words =
    Words::new(&["anon dirty mapped mapmax swapcache active writeback N# kernelpagesize_kB huge heap stack"]);

/// Policies in `numa_maps` and `mpol=`, and their flags.
pub(super) static POLICIES: Words = Words::new(&[
    "default prefer preferred bind interleave local static relative weighted weighted_interleave many",
    "balancing",
]);

/// Places in `maps`, `smaps` and `smaps_rollup` that are not files.
pub(super) static PLACES: Words = Words::new(&[
    "[heap] [stack] [stack:#] [vdso] [vvar] [vvar_vclock] [vsyscall] [vectors] [sigpage] [uprobes] [rollup]",
]);

/// Server programs, tools of every distribution and programs that findings name, as spelled in `comm`.
pub(super) static PROGRAMS: Words = Words::new(&[
    // Databases and their companions.
    "postgres postmaster pgbouncer pgpool patroni psql pg_dump pg_dumpall pg_basebackup pg_restore",
    "mysqld mysql",
    "mysqldump mariadbd mariadb mariadb-backup mysqlbackup xtrabackup mongod mongos mongo mongosh",
    "redis-server",
    "redis-sentinel redis-cli redis-sentine valkey-server valkey-cli memcached sqlservr sqlcmd db2sysc",
    "db2sync",
    "db2fmcd db2wdog db2acd db2vend db2ckpwd dataserver asesrv oracle tnslsnr sqlplus rman expdp impdp",
    "lsnrctl ohasd.bin",
    "crsd.bin ocssd.bin cssdagent cssdmonitor octssd.bin evmd.bin gipcd.bin mdnsd.bin gpnpd.bin",
    "orarootagent.bi",
    "oraagent.bin oracle-cloud-ag disp+work sapstartsrv sapstart sapcontrol saphostexec saposcol",
    "hdbindexserver",
    "hdbnameserver hdbpreprocess hdbpreprocesso hdbpreprocessor hdbcompileserve hdbcompileserver hdbxsengine",
    "hdbwebdispatche hdbdaemon hdbscriptserver hdbdiserver hdbdocstore hdbdpserver hdbesserver",
    "hdbrsutil hdbsql",
    "hdbstatisticsse hdbuserstore hdbbackint elasticsearch opensearch cassandra scylla clickhouse",
    "clickhouse-serv clickhouse-server influxd prometheus victoria-metric etcd beam.smp couchbase",
    "indexer projector",
    "goxdcr goport cbq-engine saslauthd-port tikv-server tidb-server pd-server cockroach asd aerospike",
    "kafka rabbitmq-server",
    // Languages, web servers, containers, virtual machines.
    "java node python python# python#.# perl ruby php php-fpm php-fpm#.# dotnet nginx httpd apache#",
    "haproxy varnishd",
    "varnish envoy traefik caddy squid tomcat qemu-kvm kvm qemu-ga qemu-pr-helper qemu-nbd qemu-img libvirtd",
    "virtqemud virtlogd dockerd docker containerd containerd-shim conmon runc crun podman kubelet",
    "kube-apiserver",
    "kube-proxy kube-controller kube-scheduler crio calico-node coredns ovs-vswitchd ovsdb-server",
    "ceph-osd ceph-mon ceph-mgr",
    "ceph-mds glusterd glusterfs glusterfsd testpmd vpp_main",
    // Clusters.
    "corosync pacemakerd pacemaker-based pacemaker-fence heartbeat had sbd cmcld",
    // The system.
    "systemd (sd-pam) init sshd sshd-session dbus-daemon dbus-broker dbus-broker-lau cron crond atd",
    "anacron rsyslogd",
    "syslog-ng auditd agetty login bash sh zsh fish ksh dash tcsh csh sudo su chronyd ntpd",
    "NetworkManager polkitd tuned",
    "sapconf saptune earlyoom systemd-oomd systemd-journal systemd-journald systemd-logind",
    "systemd-udevd systemd-network",
    "systemd-networkd systemd-resolve systemd-resolved systemd-timesyn systemd-timesyncd systemd-machine",
    "systemd-userdbd systemd-userwor systemd-coredump systemd-tmpfile irqbalance multipathd lvmetad",
    "dmeventd udevd snapd firewalld iscsid",
    "rpcbind rpc.statd rpc.mountd rpc.idmapd nfsd smbd nmbd postfix master qmgr pickup exim# gpg-agent",
    "ssh-agent ssh",
    "top htop atop tmux screen sysctl vmtouch swapon swapoff stress stress-ng fio sysbench pgbench lotsfree",
    // Programs that copy, pack and compile.
    "cp dd tar rsync cat gzip pigz bzip# xz zstd find updatedb updatedb.mloca plocate scp sftp-server",
    "mv rm md5sum md#sum",
    "sha#sum cpio grep sed awk sort ld cc# cc#plus gcc g++ clang make ninja cargo rustc git",
]);

/// Names of kernel threads. The text after `kworker/` and the device of a journal are cut off.
pub(super) static KERNEL_THREADS: Words = Words::new(&[
    "kthreadd kswapd# khugepaged ksmd kcompactd# ksoftirqd/# migration/# rcu_gp rcu_par_gp rcu_sched",
    "rcu_bh rcu_preempt",
    "rcu_tasks_kthre rcu_tasks_rude_ rcu_tasks_trace rcuog/# rcuop/# rcuos/# rcuc/# rcub/# cpuhp/#",
    "idle_inject/#",
    "oom_reaper kdamond.# psimon kblockd kdevtmpfs kauditd khungtaskd writeback kworker/#:# kworker/#:#H",
    "kworker/u#:# kworker/R jbd# xfsaild kthrotld netns watchdogd watchdog/# kintegrityd md edac-poller",
    "devfreq_wq",
    "inet_frag_wq kstrp slub_flushwq mm_percpu_wq pool_workqueue_ page_scan kmemleak kreclaimd#",
]);

/// Kinds of Oracle's background processes: `pmon` of `ora_pmon_SID`.
pub(super) static ORACLE: Words = Words::new(&[
    "pmon smon dbw# dbwa dbwb lgwr lg# ckpt reco mmon mmnl arc# p### p# pp# pz# j# q# qm# s# d# w# m#",
    "n# lms# lmd#",
    "lmd lmon lck# lmhb cjq# rvwr dia# diag psp# vktm vkrm gen# mman dbrm ofsd scmn scm# lreg pxmn fbda",
    "tmon tt# smco",
    "aqpc ping acms rms# rsmn rcbg asmb rbal gmon mark emnc emn# cl# clmn svcb vosd imco ppa# gcr# crv#",
    "ctwr bg# mmn#",
]);

/// Directories that distributions, the kernel and container runtimes create.
pub(super) static DIRECTORIES: Words = Words::new(&[
    "bin boot dev efi etc home lib lib# media mnt opt proc root run sbin snap srv sys tmp usr var log",
    "cache local",
    "share data shm hugepages hugepages#G hugepages#M hugetlbfs huge huge#M huge#G pts mqueue user lock",
    "credentials kernel",
    "debug tracing config security fs cgroup unified systemd memory cpu cpuacct cpu,cpuacct cpuset",
    "blkio devices freezer",
    "net_cls net_prio net_cls,net_prio perf_event pids rdma misc hugetlb bpf pstore firmware efivars",
    "fuse connections selinux docker",
    "containers containerd overlay overlay# kubelet mapper swap swapfile swap# swap.img binfmt_misc",
]);

/// Block devices as their drivers name them, without `/dev/`.
pub(super) static DEVICES: Words = Words::new(&[
    "nvme#n# nvme#n#p# mmcblk# mmcblk#p# zram# dm-# md# md#p# loop# loop#p# sr# fd# nbd# nbd#p# rbd#",
    "rbd#p# drbd#",
    "ram# pmem# pmem#s pmem#p# zd# zd#p# bcache# cciss/c#d# cciss/c#d#p# cciss!c#d# root zero null",
]);

/// Prefixes of drives that have letters between the prefix and the partition's number.
pub(super) const DRIVES: [&str; 5] = ["sd", "vd", "xvd", "hd", "dasd"];

/// Sources of mounts that are not devices.
pub(super) static SOURCES: Words = Words::new(&[
    "tmpfs devtmpfs dev proc sysfs sys cgroup cgroup# hugetlbfs none overlay ramfs udev devpts mqueue",
    "debugfs",
    "tracefs securityfs pstore bpf configfs fusectl rootfs systemd-# shm efivarfs binfmt_misc nsfs swap run",
]);

/// Types of file systems.
pub(super) static FILE_SYSTEMS: Words = Words::new(&[
    "autofs binfmt_misc bpf btrfs cgroup cgroup# ceph cifs configfs debugfs devpts devtmpfs ecryptfs",
    "efivarfs erofs",
    "exfat ext# f#fs fuse fuse.sshfs fuse.glusterfs fuse.ceph fuseblk fusectl gfs# glusterfs gpfs",
    "hugetlbfs iso# jfs lustre mqueue nfs nfs# nfsd",
    "nsfs ntfs ntfs# ocfs# overlay pipefs proc pstore ramfs reiserfs rootfs rpc_pipefs securityfs",
    "selinuxfs smb# squashfs",
    "swap sysfs tmpfs tracefs udf vfat virtiofs vxfs xfs zfs #p beegfs",
]);

/// Options of mounts without a value.
pub(super) static FLAGS: Words = Words::new(&[
    "rw ro suid nosuid dev nodev exec noexec relatime norelatime atime noatime strictatime nodiratime",
    "lazytime sync async dirsync",
    "mand inode# noswap usrquota grpquota prjquota noquota quota discard nodiscard seclabel barrier",
    "nobarrier delalloc",
    "nodelalloc dax attr# nouuid hard soft tcp udp ac noac lock nolock acl noacl user_xattr",
    "nouser_xattr bsddf",
    "nsdelegate memory_recursiveprot memory_localevents memory_hugetlb_accounting favordynmods",
    "pids_localevents",
    "memory cpu cpuacct cpuset blkio io devices freezer pids hugetlb perf_event net_cls net_prio rdma",
    "misc xattr",
    "name=systemd journal_checksum ssd nossd noautodefrag autodefrag space_cache resv_strict defaults",
]);

/// Options of mounts whose value stays if it is a number, a size or one of [`OPTION_VALUES`].
pub(super) static OPTIONS: Words = Words::new(&[
    "size nr_inodes nr_blocks pagesize min_size mode huge mpol errors data commit inode logbsize",
    "logbufs rsize wsize",
    "vers proto gid uid ptmxmode stripe resuid resgid sunit swidth timeo retrans pri allocsize compress",
]);

/// Values of [`OPTIONS`] that are words.
pub(super) static OPTION_VALUES: Words = Words::new(&[
    "always never within_size advise deny force remount-ro continue panic ordered writeback journal tcp",
    "udp rdma zstd",
    "lzo zlib zstd:# none",
    "default prefer prefer:# bind interleave local",
]);

/// Users and groups that distributions and programs create.
pub(super) static ACCOUNTS: Words = Words::new(&[
    "* root oracle grid dba oinstall asmdba asmadmin asmoper postgres mysql mariadb mongod mongodb",
    "redis valkey elasticsearch",
    "opensearch cassandra clickhouse mssql sapsys sapadm hdb kafka nginx www-data apache nobody daemon",
    "realtime audio",
    "wheel users sudo adm student faculty",
]);

/// Items of `limits.conf`.
pub(super) static LIMITS: Words = Words::new(&[
    "core data fsize memlock nofile rss stack cpu nproc as maxlogins maxsyslogins nonewprivs priority locks",
    "sigpending msgqueue nice rtprio chroot rttime",
]);

/// Values of limits that are words.
pub(super) static UNLIMITED: Words = Words::new(&["unlimited infinity -1"]);

/// Kernel parameters without a value that may stay.
pub(super) static BOOT_FLAGS: Words = Words::new(&[
    "ro rw quiet splash nosmt nohz nosmap nopti nokaslr noswapaccount nohugevmalloc nohugeiomap",
    "nomodeset debug",
    "nousb single nohibernate noresume norandmaps",
]);

/// Kernel parameters whose value stays if it is a number, a size or one of [`BOOT_VALUES`].
pub(super) static BOOT_OPTIONS: Words = Words::new(&[
    "hugepages hugepagesz default_hugepagesz hugetlb_cma hugetlb_free_vmemmap transparent_hugepage",
    "transparent_hugepage_shmem transparent_hugepage_tmpfs thp_anon thp_shmem numa numa_balancing",
    "numa_zonelist_order",
    "mem memmap mem_encrypt movable_node movablecore kernelcore cgroup_disable cgroup_enable",
    "cgroup_no_v# cgroup.memory",
    "cgroup_memory cgroup_favordynmods swapaccount swiotlb psi zswap.enabled zswap.compressor zswap.zpool",
    "zswap.max_pool_percent zswap.accept_threshold_percent zswap.shrinker_enabled isolcpus nohz",
    "nohz_full rcu_nocbs",
    "maxcpus nr_cpus init_on_alloc init_on_free page_owner page_poison page_alloc.shuffle",
    "page_reporting.page_reporting_order",
    "slub_debug slab_nomerge slub_nomerge slab_debug slub_max_order slub_min_objects slub_min_order",
    "slub_memcg_sysfs",
    "mitigations elevator crashkernel cma vmalloc lru_gen lru_gen_enabled intel_idle.max_cstate",
    "processor.max_cstate panic",
    "deferred_init stack_guard_gap hashdist dhash_entries ihash_entries percpu_alloc selinux apparmor",
    "audit nmi_watchdog",
    "systemd.unified_cgroup_hierarchy systemd.legacy_systemd_cgroup_controller intel_iommu amd_iommu",
    "iommu idle nosmt",
    "sysctl.vm.nr_hugepages sysctl.vm.swappiness sysctl.vm.min_free_kbytes sysctl.vm.overcommit_memory",
    "loglevel",
]);

/// Values of [`BOOT_OPTIONS`] that are words.
pub(super) static BOOT_VALUES: Words = Words::new(&[
    "on off yes no always never madvise inherit auto force noforce disable disabled enable enabled none",
    "full quiet true false",
    "Y N y n lazy node zone default memory nokmem nosocket nobpf hugetlb cpu io blkio cpuset pids all",
    "fake domain managed_irq",
    "advise within_size deny lzo lzo-rle lz4 lz4hc zstd deflate zbud z3fold zsmalloc poll halt nomwait",
    "pt soft strict",
    "noop deadline cfq mq-deadline kyber bfq high low mirror #% nn #:# nosmt F Z P U",
]);

/// Sections of units.
pub(super) static SECTIONS: Words =
    Words::new(&["Unit Service Slice Scope Install Mount Automount Socket Swap Timer Path Target Device"]);

/// Settings of units whose value stays.
pub(super) static UNIT_SETTINGS: Words = Words::new(&[
    "LimitMEMLOCK OOMScoreAdjust OOMPolicy NUMAPolicy NUMAMask MemoryAccounting MemoryMin MemoryLow",
    "MemoryHigh MemoryMax",
    "MemorySwapMax MemoryZSwapMax MemoryZSwapWriteback MemoryLimit MemoryDenyWriteExecute MemoryKSM",
    "DefaultMemoryMin",
    "DefaultMemoryLow DefaultMemoryAccounting DefaultMemoryPressureWatch DefaultMemoryPressureThresholdSec",
    "MemoryPressureWatch MemoryPressureThresholdSec ManagedOOMSwap ManagedOOMMemoryPressure",
    "ManagedOOMMemoryPressureLimit ManagedOOMMemoryPressureDurationSec ManagedOOMPreference ManagedOOMRules",
    "MemoryTHP StartupMemoryLow StartupMemoryHigh StartupMemoryMax StartupMemorySwapMax",
    "CPUAccounting CPUWeight CPUQuota CPUShares AllowedCPUs AllowedMemoryNodes IOWeight TasksMax",
    "TasksAccounting Nice",
    "LimitNOFILE LimitNPROC LimitAS LimitDATA LimitSTACK LimitRSS LimitCORE Delegate",
]);

/// Values of units that are words.
pub(super) static UNIT_VALUES: Words = Words::new(&[
    "infinity yes no on off true false kill avoid omit auto stop continue none skip default preferred",
    "bind interleave local all warn",
    "#s #ms #min #h",
]);

/// Suffixes of units.
pub(super) static UNIT_TYPES: Words =
    Words::new(&["service slice scope mount automount socket swap target timer path device"]);

/// Words between the dashes of a group's or a unit's name that may stay: those of systemd and of container
/// runtimes, and services of well-known programs.
pub(super) static GROUPS: Words = Words::new(&[
    "system user init machine kubepods kubelet besteffort burstable guaranteed docker libpod",
    "libpod_parent lxc lxc.payload",
    "lxc.monitor cri containerd crio pod memory unified systemd cpu cpuacct cpu,cpuacct cpuset blkio io",
    "pids hugetlb",
    "devices freezer net_cls net_prio net_cls,net_prio perf_event rdma misc app background session dbus",
    "serial getty",
    "console logind journald udevd udev oomd resolved networkd timesyncd machined homed userdbd",
    "coredump hugepages mqueue",
    "dev run runtime dir sys kernel debug tracing config fs fuse connections tmp boot home var lib",
    "multi basic sysinit",
    "graphical default swap remote local network online time sync sysctl conf tmpfiles setup modules",
    "load qemu",
    "mysql mysqld mariadb postgresql postgres pgbouncer mongod mongodb redis server valkey memcached",
    "mssql db# oracle dbora ohasd ora grid",
    "elasticsearch opensearch graylog cassandra scylla clickhouse influxdb prometheus etcd couchbase",
    "kafka rabbitmq",
    "zookeeper nginx httpd apache# haproxy varnish php fpm tomcat jetty java node sshd ssh cron crond",
    "atd rsyslog rsyslogd auditd",
    "chrony chronyd ntpd NetworkManager polkit tuned sapconf saptune sapinit sapstart earlyoom",
    "irqbalance multipathd",
    "snapd firewalld libvirtd virtqemud virtlogd gdm slice service scope broker daemon manager",
    "lotsfree capture lab c#",
]);

/// Directories of links that enable units.
pub(super) static WANTS: Words =
    Words::new(&["multi-user.target.wants basic.target.wants sysinit.target.wants graphical.target.wants"]);

/// Units for which it matters whether they are enabled.
pub(super) static ENABLED: Words =
    Words::new(&["sapconf.service saptune.service systemd-oomd.service earlyoom.service tuned.service"]);

/// Profiles of tuned that tuned itself, its packages or vendors ship.
pub(super) static PROFILES: Words = Words::new(&[
    "accelerator-performance aws balanced balanced-battery cpu-partitioning cpu-partitioning-powersave",
    "default desktop",
    "enterprise-storage hpc-compute intel-sst latency-performance mssql network-latency",
    "network-throughput openshift",
    "openshift-control-plane openshift-node optimize-serial-console oracle postgresql powersave",
    "realtime realtime-virtual-guest",
    "realtime-virtual-host sap-hana sap-hana-vmware sap-hana-kvm-guest sap-netweaver sapconf saptune",
    "sap-base sap-bobj sap-ase",
    "spectrumscale-ece spindown-disk throughput-performance virtual-guest virtual-host atomic-guest",
    "atomic-host",
]);

/// Distributions, as spelled in `ID` of os-release.
pub(super) static DISTRIBUTIONS: Words = Words::new(&[
    "almalinux alpine amzn arch azurelinux buildroot centos clear-linux-os cos debian devuan",
    "endeavouros fedora flatcar",
    "gentoo guix kali linuxmint mageia manjaro mariner miracle mx neon nixos ol opensuse opensuse-leap",
    "opensuse-tumbleweed",
    "oracle photon pop proxmox raspbian rhcos rhel rocky scientific slackware sled sles sles_sap suse",
    "talos ubuntu void xenserver",
    "sle-micro sl-micro linux openEuler anolis",
]);

/// Words that distributions put into a kernel's release.
pub(super) static RELEASES: Words = Words::new(&[
    "x#_# amd# arm# i# armhf armmp aarch# ppc#le ppc#el powerpc#le s#x riscv# loong# generic lowlatency",
    "default preempt rt",
    "rt# server virtual cloud aws azure gcp gke oracle oem kvm raspi rpi el# el#_# el#uek el#sat uek",
    "fc# amzn# lp# sles# rc# deb# deb#u#",
    "bpo bpo# pve arch arch# zen lts hardened ubuntu mainline elrepo ml debug vanilla gentoo microsoft",
    "standard WSL#",
    "cm# mga# openela linuxkit flatcar photon PMX talos nixos orbstack lve stab# vz#",
]);

/// Slab caches of kernels and of the file systems that ship with them.
pub(super) static SLABS: Words = Words::new(&[
    "AF_VSOCK Acpi-Namespace Acpi-Operand Acpi-Parse Acpi-ParseExt Acpi-State DCCP DCCPv# MPTCP MPTCPv#",
    "PING PINGv# RAW RAWv#",
    "TCP TCPv# UDP UDP-Lite UDPLITEv# UDPv# UNIX anon_vma anon_vma_chain avc_node avc_xperms_node",
    "avtab_node backing_aio bdev_cache bfilp bfq_io_cq",
    "bfq_queue bio-# bio_crypt_ctx bio_integrity_payload bio_post_read_ctx biovec-# biovec-max",
    "blkdev_ioc blkdev_queue",
    "blkdev_requests bridge_fdb_cache bsg_cmd btrfs_delayed_node btrfs_delayed_ref_head",
    "btrfs_delayed_tree_ref btrfs_extent_buffer btrfs_extent_map",
    "btrfs_extent_state btrfs_free_space btrfs_free_space_bitmap btrfs_inode btrfs_ordered_extent",
    "btrfs_path btrfs_trans_handle",
    "buffer_head ceph_cap ceph_dentry_info ceph_inode_info cfq_io_cq cfq_queue cifs_inode_cache",
    "cifs_request configfs_dir_cache cred cred_jar dentry_cache",
    "dax_cache debugfs_inode_cache dentry dm_io dm_mpath_io dm_old_clone_request dm_rq_target_io",
    "dma-kmalloc-# dma-kmalloc-#k",
    "dmaengine-unmap-# dnotify_mark dnotify_struct dquot drm_i#_gem_object ebitmap_node",
    "ecryptfs_inode_cache ep_head epitem eppoll_entry erofs_inode",
    "erofs_pcluster-# eventpoll_epi eventpoll_pwq ext#_allocation_context ext#_bio_post_read_ctx",
    "ext#_extent_status",
    "ext#_fc_dentry_update ext#_free_data ext#_groupinfo_#k ext#_inode_cache ext#_io_end",
    "ext#_io_end_vec ext#_pending_reservation ext#_prealloc_space ext#_system_zone extent_status",
    "f#fs_inode_cache fanotify_event_info fanotify_fid_event fanotify_mark fanotify_path_event",
    "fanotify_perm_event fasync_cache fat_cache fat_inode_cache fib#_nodes",
    "file_lease_cache file_lock_cache file_lock_ctx files_cache filp flow_cache fs_cache fs_struct",
    "fscache_cookie_jar fscrypt_ctx fscrypt_info fscrypt_inode_info",
    "fsnotify_event fsnotify_event_holder fsnotify_mark fsnotify_mark_connector fstrm_item",
    "fsverity_info ftrace_event_field fuse_bufvec fuse_inode",
    "fuse_request gfs#_glock gfs#_inode hugetlbfs_inode_cache i#_request iint_cache ima_iint_cache",
    "inet_peer_cache inode_cache inotify_inode_mark",
    "inotify_inode_mark_entry io_kiocb iommu_devinfo iommu_domain iommu_iova iommu_iova_magazine",
    "ip#-frags ip#_dst_cache ip#_fib_alias ip#_fib_trie ip#_mrt_cache ip_dst_cache ip_fib_alias",
    "ip_fib_trie ip_mrt_cache isofs_inode_cache jbd#_#k jbd#_inode jbd#_journal_handle",
    "jbd#_journal_head jbd#_revoke_record_s jbd#_revoke_table_s",
    "jbd#_transaction_s journal_handle journal_head kcopyd_job kernfs_iattrs_cache kernfs_node_cache",
    "key_jar khugepaged_mm_slot kioctx kiocb kmalloc-# kmalloc-#k kmalloc-#M kmalloc-cg-# kmalloc-cg-#k",
    "kmalloc-rcl-# kmalloc-rcl-#k kmalloc-rnd-#-# kmalloc-rnd-#-#k kmalloc_buckets kmem_cache",
    "kmem_cache_node ksm_mm_slot ksm_rmap_item ksm_stable_node kvm_async_pf kvm_mmu_page_header",
    "kvm_vcpu",
    "lsm_file_cache lsm_inode_cache maple_node mb_cache_entry mem_cgroup mem_cgroup_per_node",
    "memdup_user-# memdup_user-#k mm_slot",
    "mm_struct mnt_cache mqueue_inode_cache msg_msg-# msg_msg-#k names_cache net_namespace nf_conntrack",
    "nf_conntrack_expect nfs_commit_data nfs_direct_cache nfs_inode_cache nfs_page nfs_read_data",
    "nfs_write_data nfsd_drc nfsd_file nfsd_file_mark nfsd#_delegations nfsd#_files nfsd#_stateids",
    "ns_cache nsproxy numa_policy ocfs#_inode_cache ovl_aio_req ovl_inode page->ptl",
    "pde_opener pending_reservation perf_event pid pid_namespace pid_# pidfs_attr_cache",
    "pidfs_xattr_cache pool_workqueue posix_timers_cache proc_dir_entry proc_inode_cache",
    "radix_tree_node request_queue",
    "request_queue_srcu request_sock_TCP request_sock_TCPv# request_sock_subflow_v# rpc_buffers",
    "rpc_inode_cache rpc_tasks scsi_cmd_cache scsi_data_buffer scsi_sense_cache sctp_bind_bucket",
    "sctp_chunk",
    "secpath_cache selinux_file_security selinux_inode_security seq_file sgpool-# shared_policy_node",
    "shmem_inode_cache sighand_cache signal_cache sigqueue size-# skbuff_ext_cache skbuff_fclone_cache",
    "skbuff_head_cache skbuff_small_head smb#_inode sock_inode_cache squashfs_inode_cache",
    "sysfs_dir_cache t#key_cache task_delay_info task_group task_struct task_xstate taskstats",
    "tcp_bind#_bucket tcp_bind_bucket trace_event_file",
    "tracefs_inode_cache tun_struct tw_sock_TCP tw_sock_TCPv# tw_sock_DCCP tw_sock_DCCPv#",
    "udf_inode_cache uid_cache user_namespace userfaultfd_ctx_cache uts_namespace v#fs_inode_cache",
    "vm_area_struct vma_lock vmap_area virtio_scsi_cmd x#_emulator x#_fpu x#_lbr xfrm#_tunnel_spi",
    "xfrm_dst xfrm_dst_cache xfrm_state xfs_agfl_item xfs_attri_item xfs_bmap_free_item xfs_bmbt_cur",
    "xfs_bnobt_cur xfs_btree_cur xfs_buf xfs_buf_item xfs_bud_item",
    "xfs_bui_item xfs_cud_item xfs_cui_item xfs_da_state xfs_dqtrx xfs_dquot xfs_efd_item xfs_efi_item",
    "xfs_extfree_item xfs_icr xfs_ifork xfs_ili xfs_inobt_cur xfs_inode xfs_ioend xfs_log_ticket",
    "xfs_refcbt_cur xfs_rmapbt_cur xfs_rtrmapbt_cur xfs_rud_item xfs_rui_item xfs_trans xfs_xmi_item",
    "xfs_xmd_item xt_hashlimit zio_buf_# zio_data_buf_# zio_cache zfs_znode_cache dnode_t",
    "dmu_buf_impl_t arc_buf_t arc_buf_hdr_t_full zio_link_cache abd_t zs_handle zspage zswap_entry",
]);

/// The header of `/proc/slabinfo` and its words between numbers.
pub(super) static SLABINFO: Words = Words::new(&[
    "slabinfo version name active_objs num_objs objsize objperslab pagesperslab tunables limit batchcount",
    "sharedfactor slabdata active_slabs num_slabs sharedavail # - : statistics globalstat cpustat",
]);

/// Constraints under which the kernel log says that a process was killed.
pub(super) static CONSTRAINTS: Words =
    Words::new(&["CONSTRAINT_NONE CONSTRAINT_MEMCG CONSTRAINT_MEMORY_POLICY CONSTRAINT_CPUSET"]);

/// Words after a victim's name in the kernel log.
pub(super) static KILLED: Words = Words::new(&[
    "total-vm anon-rss file-rss shmem-rss vsz UID pgtables oom_score_adj score or sacrifice child",
]);

/// Fields of the kernel's reports on memory, in small letters, and names of flags without `GFP_`.
pub(super) static REPORT: Words = Words::new(&[
    "free boost min low high reserved_highatomic free_highatomic active_anon inactive_anon active_file inactive_file",
    "unevictable isolated(anon) isolated(file) isolated_anon isolated_file writepending present managed mlocked dirty",
    "writeback mapped shmem slab slab_reclaimable slab_unreclaimable kernel_stack pagetables sec_pagetables bounce unstable",
    "free_pcp local_pcp free_cma writeback_tmp pages_scanned shmem_thp shmem_pmdmapped anon_thp kernel_misc_reclaimable",
    "balloon gpuactive gpureclaim active inactive cache rss rss_huge mapped_file swap swapcached pgpgin pgpgout pgfault",
    "pgmajfault hierarchical_memory_limit hierarchical_memsw_limit total_cache total_rss total_rss_huge total_shmem",
    "total_mapped_file total_dirty total_writeback total_swap total_swapcached total_pgpgin total_pgpgout total_pgfault",
    "total_pgmajfault total_inactive_anon total_active_anon total_inactive_file total_active_file total_unevictable",
    "KERNEL KERNEL_ACCOUNT ATOMIC NOWAIT NOIO NOFS USER DMA DMA# HIGHUSER HIGHUSER_MOVABLE TRANSHUGE TRANSHUGE_LIGHT HIGHMEM",
    "MOVABLE RECLAIMABLE HIGH IO FS ZERO WRITE RETRY_MAYFAIL REPEAT NOFAIL NORETRY MEMALLOC COMP NOMEMALLOC HARDWALL THISNODE",
    "ACCOUNT DIRECT_RECLAIM KSWAPD_RECLAIM RECLAIM NOWARN NOTRACK COLD WAIT TEMPORARY SKIP_ZERO SKIP_KASAN ZEROTAGS NOLOCKDEP",
]);

/// Files of khugepaged's directory.
pub(super) static KHUGEPAGED: Words = Words::new(&[
    "alloc_sleep_millisecs defrag full_scans max_ptes_none max_ptes_shared max_ptes_swap",
    "pages_collapsed pages_to_scan",
    "scan_sleep_millisecs",
]);

/// Parameters and counts of zswap.
pub(super) static ZSWAP: Words = Words::new(&[
    "accept_threshold_percent compressor enabled exclusive_loads max_pool_percent",
    "non_same_filled_pages_enabled",
    "same_filled_pages_enabled shrinker_enabled zpool",
    "pool_limit_hit reject_alloc_fail reject_compress_fail reject_compress_poor reject_reclaim_fail",
]);

/// Files of KSM's directory, other than counters.
pub(super) static KSM: Words = Words::new(&[
    "advisor_max_cpu advisor_max_pages_to_scan advisor_min_pages_to_scan advisor_target_scan_time",
    "max_page_sharing",
    "merge_across_nodes pages_to_scan run sleep_millisecs smart_scan stable_node_chains_prune_millisecs",
    "use_zero_pages",
]);

/// Control files of memory cgroups that the collector reads.
pub(super) static CONTROL_FILES: Words = Words::new(&[
    "cgroup.controllers cgroup.stat memory.current memory.max memory.high memory.low memory.min",
    "memory.swap.current",
    "memory.swap.max memory.peak memory.oom.group memory.stat memory.events memory.pressure",
    "memory.usage_in_bytes",
    "memory.limit_in_bytes memory.soft_limit_in_bytes memory.max_usage_in_bytes memory.memsw.usage_in_bytes",
    "memory.memsw.limit_in_bytes memory.swappiness memory.failcnt memory.oom_control",
    "hugetlb.#kB.current hugetlb.#MB.current hugetlb.#GB.current hugetlb.#kB.max hugetlb.#MB.max",
    "hugetlb.#GB.max",
    "hugetlb.#kB.events hugetlb.#MB.events hugetlb.#GB.events hugetlb.#kB.failcnt hugetlb.#MB.failcnt",
    "hugetlb.#GB.failcnt",
    "hugetlb.#kB.rsvd.max hugetlb.#MB.rsvd.max hugetlb.#GB.rsvd.max hugetlb.#kB.rsvd.limit_in_bytes",
    "hugetlb.#MB.rsvd.limit_in_bytes hugetlb.#GB.rsvd.limit_in_bytes hugetlb.#kB.usage_in_bytes",
    "hugetlb.#MB.usage_in_bytes",
    "hugetlb.#GB.usage_in_bytes hugetlb.#kB.limit_in_bytes hugetlb.#MB.limit_in_bytes",
    "hugetlb.#GB.limit_in_bytes",
]);
