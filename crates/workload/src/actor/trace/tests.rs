//! Traces of both formats against a plain model of what they mean, and every way in which they can be bad.

use std::path::Path;

use proptest::{prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::actor::{Actor, Files};
use crate::op::{FileId, Op, RegionId};
use crate::program::{CommandSpec, FileSpec, SegmentSpec};
use crate::quantity::Time;

/// What a trace has no use for.
type Rest = (Vec<SegmentSpec>, Vec<CommandSpec>);

fn site<'a>(directory: &'a Path, files: &'a mut Files, (segments, commands): &'a mut Rest) -> Site<'a> {
    Site { actor: "a", seed: 1, directory, life: Time::s(1), memlock: None, files, segments, commands }
}

/// What a trace of these bytes replays, and the files of the program.
fn replay(bytes: &[u8], text: &str) -> Result<(Vec<Op>, Vec<FileSpec>), String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("t"), bytes).unwrap();
    let actor: Actor = toml::from_str(&format!("kind = 'trace'\npath = 't'\n{text}")).unwrap();
    let mut files = Files::default();
    let mut rest = Rest::default();
    let mut site = site(directory.path(), &mut files, &mut rest);
    let built = actor.build(&mut site);
    let mut instances = built
        .map_err(|refusal| refusal.to_string().replace(&format!("{}/", directory.path().display()), ""))?;
    let mut ops = Vec::new();
    loop {
        let before = ops.len();
        instances[0].threads[0].stream.fill(&mut ops);
        if ops.len() == before {
            return Ok((ops, files.into_specs()));
        }
    }
}

fn csv(lines: &str, more: &str) -> Result<Vec<Op>, String> {
    replay(lines.as_bytes(), &format!("format = 'csv'\n{more}")).map(|(ops, _)| ops)
}

fn oracle(records: &[OracleRecord]) -> Vec<u8> {
    records.iter().flat_map(|record| record.to_bytes()).collect()
}

fn record(clock_time: u32, object: u64, size: u32) -> OracleRecord {
    OracleRecord { clock_time, object, size, next_access: -1 }
}

fn touch(page: u32, write: bool) -> Op {
    Op::Touch { region: RegionId(0), page, write }
}

fn file(pages: u32) -> Op {
    Op::MapFile { region: RegionId(0), file: FileId(0), pages, shared: true }
}

#[test]
fn pages_keep_their_numbers_and_objects_get_theirs() {
    assert_eq!(
        csv("7\n3\n7\n", "per-request = 0"),
        Ok(vec![file(8), touch(7, false), touch(3, false), touch(7, false)])
    );
    assert_eq!(
        csv("700\n3\n700\n", "per-request = 0\ncolumns = ['object']"),
        Ok(vec![file(2), touch(0, false), touch(1, false), touch(0, false)])
    );
}

#[test]
fn columns_are_what_they_are_said_to_be() {
    let text = "# a comment\nwhen;x;what;how much;op\n10;x;1;8192;Read\n10;;9;1; W\n12;\"a;b\";1;4097;set\n";
    let more =
        "columns = ['time', 'skip', 'object', 'size', 'op']\nheader = true\ndelimiter = ';'\ntimed = true";
    let due = |ns| Op::Pace { ns };
    let expected = [
        file(3),
        due(0),
        Op::Arrive,
        touch(0, false),
        touch(1, false),
        Op::Done,
        due(0),
        Op::Arrive,
        touch(2, true),
        Op::Done,
        due(20_000_000),
        Op::Arrive,
        touch(0, true),
        touch(1, true),
        Op::Done,
    ];
    assert_eq!(csv(text, &format!("{more}\ntime-unit = '10 ms'")), Ok(expected.to_vec()));
}

#[test]
fn an_object_has_room_for_its_largest_size() {
    let bytes = oracle(&[record(1, 5, 100), record(1, 6, 4096), record(2, 5, 12_288), record(3, 6, 0)]);
    let (ops, specs) = replay(&bytes, "format = 'oracle-general'\nper-request = 3").unwrap();
    let expected = [
        file(4),
        Op::Begin,
        touch(0, false),
        touch(3, false),
        touch(0, false),
        touch(1, false),
        touch(2, false),
        Op::Done,
        Op::Begin,
        touch(3, false),
        Op::Done,
    ];
    assert_eq!(ops, expected);
    assert_eq!(specs, [FileSpec { name: "a/trace".to_owned(), pages: 4, exists: true }]);
    let (ops, specs) =
        replay(&bytes, "format = 'oracle-general'\nper-request = 0\nsizes = false\nas = 'anon'\nrecords = 3")
            .unwrap();
    let expected =
        [Op::MapAnon { region: RegionId(0), pages: 2 }, touch(0, true), touch(1, true), touch(0, true)];
    assert_eq!(ops, expected);
    assert_eq!(specs, []);
}

#[test]
fn the_share_of_stores_is_for_traces_that_do_not_say() {
    let lines = "1\n".repeat(20_000);
    let ops = csv(&lines, "write = 0.25\nper-request = 0").unwrap();
    let stores = ops.iter().filter(|op| **op == touch(1, true)).count();
    assert!((4750..5250).contains(&stores), "{stores}");
    let ops = csv("1,r\n1,w\n", "columns = ['page', 'op']\nwrite = 1.0\nper-request = 0").unwrap();
    assert_eq!(ops[1..], [touch(1, false), touch(1, true)]);
}

#[test]
fn a_compressed_trace_replays_the_same() {
    let records: Vec<OracleRecord> =
        (0..20_000).map(|i| record(i, u64::from(i) * 7919 % 613, 4096)).collect();
    let bytes = oracle(&records);
    let packed = zstd::encode_all(bytes.as_slice(), 3).unwrap();
    assert!(packed.len() < bytes.len());
    let plain = replay(&bytes, "format = 'oracle-general'").unwrap();
    assert_eq!(plain.0.len(), 1 + 3 * 20_000);
    assert_eq!(replay(&packed, "format = 'oracle-general'").unwrap(), plain);
    let lines: String = records.iter().map(|record| format!("{}\n", record.object)).collect();
    let packed = zstd::encode_all(lines.as_bytes(), 3).unwrap();
    assert_eq!(replay(&packed, "format = 'csv'\ncolumns = ['object']").unwrap(), plain);
    let error = replay(&packed[..packed.len() / 2], "format = 'csv'").unwrap_err();
    assert!(error.starts_with("path: t: record "), "{error}");
}

#[test]
fn bad_traces_are_refused_with_file_and_record() {
    for (text, more, error) in [
        ("1\nx2\n", "", "path: t: record 2, line 2: column 1: \"x2\" is not the number of a page"),
        ("1\n\n\n-2\n", "", "path: t: record 2, line 4: column 1: \"-2\" is not the number of a page"),
        ("1\r\n\r\n2\r\nx", "", "path: t: record 3, line 4: column 1: \"x\" is not the number of a page"),
        (
            "#\na\n1,\n",
            "header = true\ncolumns = ['skip', 'page']",
            "path: t: record 1, line 3: column 2: \"\" is not the number of a page",
        ),
        (
            "1\n18446744073709551616\n",
            "columns = ['object']",
            "path: t: record 2, line 2: column 1: \"18446744073709551616\" is not the number of an object",
        ),
        (
            "1,4096\n1\n",
            "columns = ['object', 'size']",
            "path: t: record 2, line 2: it has 1 column, and column 2 is missing",
        ),
        (
            "1,4 KiB\n",
            "columns = ['object', 'size']",
            "path: t: record 1, line 1: column 2: \"4 KiB\" is not a size in bytes",
        ),
        (
            "1,x\n",
            "columns = ['page', 'op']",
            "path: t: record 1, line 1: column 2: \"x\" is not r, read, get, w, write or set",
        ),
        (
            "1,1.5\n",
            "columns = ['page', 'time']",
            "path: t: record 1, line 1: column 2: \"1.5\" is not a whole number of time units",
        ),
        (
            "1,5\n1,4\n",
            "columns = ['page', 'time']\ntimed = true",
            "path: t: record 2, line 2: the time 4 comes after 5",
        ),
        ("1\n4294967295\n", "", "path: t: record 2, line 2: the trace needs 16 TiB or more"),
        (
            "1,4294967296\n1,4294967297\n",
            "columns = ['object', 'size']",
            "path: t: record 2, line 2: a size of 4294967297 bytes; it may be at most 4 GiB",
        ),
        ("", "", "path: t: it holds no record"),
        ("# nothing\n", "", "path: t: it holds no record"),
        ("1\n", "columns = ['time']", "columns: must have \"page\" or \"object\", and one of them only"),
        (
            "1\n",
            "columns = ['page', 'object']",
            "columns: must have \"page\" or \"object\", and one of them only",
        ),
        ("1\n", "columns = ['page', 'op', 'op']", "columns: has a column twice"),
        ("1\n", "timed = true", "columns: must have \"time\" with `timed`"),
        ("1\n", "delimiter = '→'", "delimiter: is '→'; it must be an ASCII character"),
        (
            "1\n",
            "timed = true\ncolumns = ['page', 'time']\nper-request = 0",
            "per-request: is 0; with `timed` it must be 1",
        ),
    ] {
        assert_eq!(csv(text, more), Err(error.to_owned()), "{text}");
    }
    assert_eq!(missing(), "path: no: No such file or directory (os error 2)");
    let bytes = oracle(&[record(1, 2, 3), record(4, 5, 6)]);
    let cut = |len: usize| replay(&bytes[..len], "format = 'oracle-general'").unwrap_err();
    assert_eq!(cut(0), "path: t: it holds no record");
    assert_eq!(cut(47), "path: t: record 2: the file ends after 23 of its 24 bytes");
    let back = oracle(&[record(9, 1, 1), record(8, 1, 1)]);
    assert_eq!(
        replay(&back, "format = 'oracle-general'\ntimed = true").unwrap_err(),
        "path: t: record 2: the time 8 comes after 9"
    );
}

fn missing() -> String {
    let actor: Actor = toml::from_str("kind = 'trace'\npath = 'no'\nformat = 'csv'").unwrap();
    let mut files = Files::default();
    let mut rest = Rest::default();
    let mut site = site(Path::new(""), &mut files, &mut rest);
    actor.build(&mut site).unwrap_err().to_string()
}

/// What is said of a trace that is not there to be read as one, by its path.
fn refused(path: &str, more: &str) -> String {
    let actor: Actor = toml::from_str(&format!("kind = 'trace'\npath = '{path}'\n{more}")).unwrap();
    let (mut files, mut rest) = (Files::default(), Rest::default());
    let built = actor.build(&mut site(Path::new("/"), &mut files, &mut rest));
    built.err().map(|refusal| refusal.to_string()).unwrap_or_default()
}

#[test]
fn what_is_no_file_is_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for more in ["format = 'oracle-general'", "format = 'csv'"] {
        for (path, what) in [
            (fifo.to_str().unwrap(), "a FIFO, not a regular file"),
            ("/dev/zero", "a device, not a regular file"),
            (directory.path().to_str().unwrap(), "a directory, not a regular file"),
        ] {
            let error = refused(path, more);
            assert!(error.contains(path) && error.contains(what), "{error}");
        }
    }
}

#[test]
fn a_trace_without_line_ends_is_not_read_into_memory() {
    let long = vec![b'7'; 64 << 20];
    let quoted = [&b"\"7\n"[..], &b"7\n".repeat(32 << 20)].concat();
    let bomb = zstd::encode_all(&long[..], 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    for bytes in [&long, &quoted, &bomb, &[b'#'; 2 << 20].to_vec()] {
        let error = replay(bytes, "format = 'csv'").unwrap_err();
        assert!(error.starts_with("path: t: record 1, line "), "{error}");
        assert!(error.ends_with(": more than 1048576 bytes without a record"), "{error}");
    }
    // Long comments may be.
    let comment = [&[b'#'; 900_000][..], b"\n7\n"].concat();
    assert_eq!(
        replay(&comment, "format = 'csv'\nper-request = 0").unwrap().0,
        vec![file(8), touch(7, false)]
    );
}

proptest! {
    #[test]
    fn oracle_records_read_back(clock_time: u32, object: u64, size: u32, next_access: i64) {
        let record = OracleRecord { clock_time, object, size, next_access };
        let bytes = record.to_bytes();
        prop_assert_eq!(&bytes[..4], &clock_time.to_le_bytes());
        prop_assert_eq!(&bytes[4..12], &object.to_le_bytes());
        prop_assert_eq!(&bytes[12..16], &size.to_le_bytes());
        prop_assert_eq!(&bytes[16..], &next_access.to_le_bytes());
        prop_assert_eq!(OracleRecord::from_bytes(bytes), record);
    }

    #[test]
    fn what_is_replayed_is_what_was_recorded(
        accesses in proptest::collection::vec((0_u64..50, 0_u32..20_000), 1..3000),
        spread in 1_u64..1_000_000_007,
    ) {
        // Objects of small numbers and of large ones, against a plain reading of the rule.
        let records: Vec<OracleRecord> =
            accesses.iter().map(|(object, size)| record(0, object * spread, *size)).collect();
        let pages = |size: u32| size.div_ceil(4096).max(1);
        let mut order: Vec<(u64, u32)> = Vec::new();
        for (object, size) in &accesses {
            match order.iter_mut().find(|(known, _)| known == object) {
                Some((_, most)) => *most = pages(*size).max(*most),
                None => order.push((*object, pages(*size))),
            }
        }
        let total: u32 = order.iter().map(|(_, pages)| pages).sum();
        let mut expected = vec![file(total)];
        for (object, size) in &accesses {
            let before = order.iter().take_while(|(known, _)| known != object);
            let first: u32 = before.map(|(_, pages)| pages).sum();
            expected.push(Op::Begin);
            expected.extend((first..first + pages(*size)).map(|page| touch(page, false)));
            expected.push(Op::Done);
        }
        let (ops, _) = replay(&oracle(&records), "format = 'oracle-general'").unwrap();
        prop_assert_eq!(ops, expected);
    }

    #[test]
    fn reading_never_panics(bytes in proptest::collection::vec(0_u8.., 0..200), text in "[0-9,\"\n#x-]{0,60}") {
        for more in ["format = 'oracle-general'", "format = 'csv'", "format = 'csv'\ncolumns = ['object', 'size']"] {
            for bytes in [bytes.as_slice(), text.as_bytes()] {
                if let Err(error) = replay(bytes, &format!("{more}\nper-request = 0\nsizes = false")) {
                    prop_assert!(error.starts_with("path: t: "), "{}", error);
                }
            }
        }
    }
}
