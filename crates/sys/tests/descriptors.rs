//! Tracepoints on more CPUs than a user may open files. Alone in its process, whose limit it changes.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use lotsfree_sys::Tracing;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_host_may_have_more_cpus_than_a_user_may_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(1), ..limit };
    setrlimit(Resource::Nofile, few).unwrap();
    let opened = Tracing::open(&[0], &[], 1 << 16).map(drop);
    let after = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, limit).unwrap();
    assert_eq!(after.current, few.current);
    if let Err(error) = opened {
        assert_ne!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()), "{error}");
        eprintln!("not tested: {error}");
    }
}
