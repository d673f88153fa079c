//! Fuzzes traces of recorded accesses, which are read and replayed.

use std::fs;

use lotsfree_scenario::Scenario;
use lotsfree_workload::Op;

use crate::runs::place;
use crate::seeds::Fixture;

/// The most operations of one input. The first pass has read the whole trace by then, and later ones repeat
/// it.
const MOST: usize = 1 << 18;

/// Lists of a table's columns, valid and invalid.
const COLUMNS: [&str; 8] = [
    "'page'",
    "'object'",
    "'time', 'object', 'size'",
    "'page', 'op'",
    "'skip', 'object', 'op', 'size', 'time'",
    "'time', 'page', 'size', 'op'",
    "'object', 'page'",
    "'size', 'size', 'page'",
];
const DELIMITERS: [&str; 4] = [",", " ", "\\t", ";"];

/// Fuzzes a trace. Two bytes choose its format and how it is replayed; the rest is the file.
pub(crate) fn run(data: &[u8]) {
    let Some((&[format, replay], file)) = data.split_first_chunk() else { return };
    let path = place().join("trace");
    if let Err(error) = fs::write(&path, file) {
        panic!("{}: {error}", path.display());
    }
    let scenario = scenario(format, replay);
    let scenario = match Scenario::parse(&scenario, &place().join("fuzz.toml").display().to_string()) {
        Ok(scenario) => scenario,
        Err(errors) => panic!("{errors}\n{scenario}"),
    };
    let Ok(cases) = scenario.cases(None) else { return };
    let mut program = match cases[0].program() {
        Ok(program) => program,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    let pages = program.files.first().map(|file| file.pages);
    for thread in program.processes.iter_mut().flat_map(|process| &mut process.threads) {
        let (mut ops, mut count) = (Vec::new(), 0);
        while count < MOST {
            ops.clear();
            thread.stream.fill(&mut ops);
            if ops.is_empty() {
                break;
            }
            count += ops.len();
            let within = |op: &Op| match op {
                Op::Touch { page, .. } => pages.is_none_or(|pages| *page < pages),
                _ => true,
            };
            assert!(ops.iter().all(within), "an access beyond {pages:?} pages");
        }
    }
}

/// The scenario of a machine that replays the trace.
fn scenario(format: u8, replay: u8) -> String {
    let columns = COLUMNS[usize::from(format >> 1) % COLUMNS.len()];
    let delimiter = DELIMITERS[usize::from(format >> 4) % DELIMITERS.len()];
    let (format, table) = match format & 1 {
        0 => ("oracle-general", String::new()),
        _ => {
            let header = format & 64 != 0;
            ("csv", format!("columns = [{columns}]\ndelimiter = \"{delimiter}\"\nheader = {header}\n"))
        }
    };
    let backing = if replay & 1 == 0 { "file" } else { "anon" };
    let (sizes, timed) = (replay & 2 == 0, replay & 4 != 0);
    let per_request = if timed { 1 } else { (replay >> 3) & 3 };
    format!(
        "title = 't'\nduration = '1 s'\n[machine]\ngeneration = 'linux-6.1'\ncpus = 1\nnodes = ['1 GiB']\n\
         [[actor]]\nname = 'a'\nkind = 'trace'\npath = 'trace'\nformat = '{format}'\n{table}as = '{backing}'\n\
         sizes = {sizes}\ntimed = {timed}\nper-request = {per_request}\nrecords = 5000\n"
    )
}

/// Seeds: tables with each kind of column, and records of libCacheSim, plain and compressed.
pub(crate) fn seeds(_: &Fixture) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let mut add = |format: u8, contents: &[u8]| {
        for replay in [0, 1, 6, 24] {
            seeds.push([&[format, replay], contents].concat());
            let compressed = zstd::bulk::compress(contents, 1).unwrap_or_default();
            seeds.push([&[format, replay], compressed.as_slice()].concat());
        }
    };
    let mut oracle = Vec::new();
    for (time, object, size) in [(1u32, 7u64, 4096u32), (2, 9, 100), (2, 7, 9000), (5, 1 << 40, 0)] {
        oracle.extend_from_slice(&time.to_le_bytes());
        oracle.extend_from_slice(&object.to_le_bytes());
        oracle.extend_from_slice(&size.to_le_bytes());
        oracle.extend_from_slice(&(-1i64).to_le_bytes());
    }
    add(0, &oracle);
    add(1, b"# pages\n3\n1\n\n2\n");
    add(1 | 1 << 1, b"18446744073709551615\n5\n5\n");
    add(1 | 2 << 1 | 64, b"time,object,size\n1,12,4096\n2,13,70000\n");
    add(1 | 3 << 1, b"5,r\n6,write\n7,SET\n7,get\r\n");
    add(1 | 4 << 1, b"x,1,w,512,10\n\"y\",2,read,1,11\n");
    add(1 | 5 << 1, b"1,100,8192,r\n3,200,1,w\n");
    add(1 | 6 << 1, b"1,2\n");
    seeds
}
