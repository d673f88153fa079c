//! Parsing and printing: printed text reads back, and no input is fatal.

use lotsfree_kernel_files::counters::*;
use proptest::prelude::*;

/// Reads `text`; also returns the lines that were refused.
fn read<F: Family>(text: &[u8]) -> (Values<F>, Vec<BadLine>) {
    let mut bad = Vec::new();
    let values = Values::parse(text, |line| bad.push(line));
    (values, bad)
}

fn printed<F: Family>(values: &Values<F>) -> String {
    let mut out = String::new();
    values.print(&mut out);
    out
}

/// Values for some of the rows of `F`, and lines that the table does not know.
fn any_values<F: Family>() -> impl Strategy<Value = Values<F>> {
    let known = prop::collection::vec(prop_oneof![Just(None), (0..u64::MAX).prop_map(Some)], F::ROWS.len());
    // No row of any family starts like this.
    let unknown = prop::collection::vec(("zz[a-z_]{0,12}( [a-z]{1,4})?", 0..u64::MAX), 0..8);
    (known, unknown).prop_map(|(known, unknown)| {
        let mut values = Values::default();
        for (row, value) in F::ROWS.iter().zip(known) {
            if let (Some(counter), Some(value)) = (Counter::named(row.name), value) {
                values.set(counter, value);
            }
        }
        for (name, value) in unknown {
            values.record(name.as_bytes(), value, &mut 0);
        }
        values
    })
}

/// Checks `property` on fixed pseudo-random cases, the same at every run.
fn check<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    if let Err(failure) = TestRunner::new_with_rng(config, random).run(&strategy, property) {
        panic!("{failure}");
    }
}

fn reads_back<F: Family + PartialEq>() {
    check(any_values::<F>(), |values| {
        let text = printed(&values);
        let (back, bad) = read::<F>(text.as_bytes());
        prop_assert_eq!(&bad, &[]);
        prop_assert_eq!(&back, &values);
        // The order of lines does not matter for names that the table has.
        let reversed: String = text.lines().rev().flat_map(|l| [l, "\n"]).collect();
        let (back, bad) = read::<F>(reversed.as_bytes());
        prop_assert_eq!(&bad, &[]);
        prop_assert!(back.iter().eq(values.iter()));
        Ok(())
    });
}

fn any_input_is_harmless<F: Family + PartialEq>() {
    let line = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[ \t]{0,2}[A-Za-z_]{0,9}[: \t]{0,3}-?[0-9]{0,22}[ \t]{0,2}(kB|KB|MB)?\r?"
            .prop_map(String::into_bytes),
        (0..F::ROWS.len(), any::<u64>()).prop_map(|(i, v)| format!(
            "{}{} {v}",
            F::ROWS[i].name,
            char::from(F::SEPARATOR)
        )
        .into_bytes()),
    ];
    check(prop::collection::vec(line, 0..12), |lines| {
        let text = lines.join(&b'\n');
        let (values, bad) = read::<F>(&text);
        let count = text.split(|&b| b == b'\n').count();
        prop_assert!(values.iter().count() + values.unknown().len() + bad.len() <= count);
        prop_assert!(bad.iter().all(|b| b.line >= 1 && b.line as usize <= count && !b.why.is_empty()));
        let (back, bad) = read::<F>(printed(&values).as_bytes());
        prop_assert_eq!(&bad, &[]);
        prop_assert_eq!(back, values);
        Ok(())
    });
}

macro_rules! properties {
    ($($family:ident $reads:ident $harmless:ident;)*) => {
        $(#[test]
        fn $reads() {
            reads_back::<$family>();
        }

        #[test]
        fn $harmless() {
            any_input_is_harmless::<$family>();
        })*

        /// The list above is the list of all families.
        #[test]
        fn no_family_is_left_out() {
            let here = [$($family::NAME),*];
            let mut all = Vec::new();
            macro_rules! add {
                ($each:ident) => { all.push($each::NAME); };
            }
            each_family!(add);
            assert_eq!(here.as_slice(), all.as_slice());
        }
    };
}

properties! {
    Meminfo meminfo_reads_back meminfo_takes_anything;
    Vmstat vmstat_reads_back vmstat_takes_anything;
    Zoneinfo zoneinfo_reads_back zoneinfo_takes_anything;
    Numastat numastat_reads_back numastat_takes_anything;
    Status status_reads_back status_takes_anything;
    SmapsRollup smaps_rollup_reads_back smaps_rollup_takes_anything;
    MemoryStat memory_stat_reads_back memory_stat_takes_anything;
    MemoryEvents memory_events_read_back memory_events_take_anything;
    MthpStats mthp_stats_read_back mthp_stats_take_anything;
    Khugepaged khugepaged_reads_back khugepaged_takes_anything;
    Ksm ksm_reads_back ksm_takes_anything;
}

#[test]
fn kernel_texts_print_as_they_were() {
    let text = include_str!("data/vmstat-6.18.txt");
    for (printed, read) in printed(&read::<Vmstat>(text.as_bytes()).0).lines().zip(text.lines()) {
        assert_eq!(printed, read);
    }
    let text = include_str!("data/meminfo-6.18.txt");
    let squeezed: String =
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect();
    assert_eq!(printed(&read::<Meminfo>(text.as_bytes()).0), squeezed);
}

#[test]
fn unknown_lines_are_kept_in_order() {
    let (values, bad) = read::<Meminfo>(b"NewThing: 7 kB\nMemFree: 5 kB\nOlder Thing:\t8\n");
    assert_eq!(bad, []);
    assert_eq!(values.get(meminfo::MemFree), Some(5));
    assert_eq!(values.unknown(), [("NewThing".into(), 7), ("Older Thing".into(), 8)]);

    let (values, bad) = read::<Vmstat>(b"nr_new 7\nvm stats threshold 8\n");
    assert_eq!(bad, []);
    assert_eq!(values.unknown(), [("nr_new".into(), 7), ("vm stats threshold".into(), 8)]);
}

#[test]
fn what_is_wrong_with_a_line_is_said() {
    let text = b"MemTotal: 18446744073709551616 kB\n\
        MemFree: 18446744073709551615 kB\n\
        Buffers:\n\
        Cached: many kB\n\
        Active\n\
        : 5 kB\n\
        Inactive: 5 MB\n\
        \n\
        Dirty: -1 kB\n\
        Writeback: 9 kB\n";
    let (values, bad) = read::<Meminfo>(text);
    let said: Vec<_> = bad.iter().map(|b| (b.line, b.why)).collect();
    assert_eq!(
        said,
        [
            (1, "a number larger than 64 bits hold"),
            (2, "a number larger than any counter"),
            (3, "no number after the name"),
            (4, "no number after the name"),
            (5, "no separator between a name and a number"),
            (6, "a number without a name"),
            (7, "something other than kB after the number"),
            (9, "no number after the name"),
        ]
    );
    assert_eq!(values.iter().collect::<Vec<_>>(), [(meminfo::Writeback, 9)]);

    let (values, bad) = read::<Vmstat>(b"pgfault\npgfault x\npgfault -1\npgfault 1 2\npgfault 3\n");
    assert_eq!(bad.iter().map(|b| b.line).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(values.get(vmstat::pgfault), Some(3));
}

#[test]
fn empty_files_are_empty() {
    for text in [&b""[..], b"\n", b"\n \t\r\n"] {
        let (values, bad) = read::<Vmstat>(text);
        assert!(values.is_empty() && bad.is_empty());
        assert_eq!(printed(&values), "");
    }
}

#[test]
fn bytes_that_are_no_text_are_kept_as_far_as_can_be() {
    let (values, bad) = read::<Vmstat>(b"\xff\xfe\x00\x80 5\npgfault 6\n\xff\xff\n");
    assert_eq!(values.unknown().len(), 1);
    assert_eq!(values.get(vmstat::pgfault), Some(6));
    assert_eq!(bad.len(), 1);
}

#[test]
fn a_line_of_ten_megabytes_is_refused() {
    let long = 10 << 20;
    let name =
        |fill: u8, tail: &[u8]| [&vec![fill; long][..], tail, b"\npgfault 6\nMemFree: 7 kB\n"].concat();
    for text in [name(b'a', b""), name(b'a', b" 5"), name(b'a', b": 5"), name(b'5', b""), name(b':', b"")] {
        let (values, bad) = read::<Vmstat>(&text);
        assert_eq!(bad.first().map(|b| b.line), Some(1));
        assert_eq!(values.get(vmstat::pgfault), Some(6));
        let (values, bad) = read::<Meminfo>(&text);
        assert_eq!(bad.first().map(|b| b.line), Some(1));
        assert_eq!(values.get(meminfo::MemFree), Some(7));
    }
    // A line of blanks only is an empty line.
    assert_eq!(read::<Vmstat>(&vec![b' '; long]).1, []);
    // A number of ten million digits.
    let text = [&b"pgfault 1"[..], &vec![b'0'; long]].concat();
    assert_eq!(read::<Vmstat>(&text).1.len(), 1);
}

#[test]
fn unknown_names_cannot_fill_memory() {
    let text: String = (0..5000).map(|i| format!("zz{i} 1\n")).collect();
    let (values, bad) = read::<Vmstat>(text.as_bytes());
    assert_eq!(values.unknown().len() + bad.len(), 5000);
    assert!(!bad.is_empty());
}

#[test]
fn absent_is_not_zero() {
    let (mut values, _) = read::<Vmstat>(b"pgfault 0\n");
    assert_eq!(values.get(vmstat::pgfault), Some(0));
    assert_eq!(values.get(vmstat::pgmajfault), None);
    values.set(vmstat::pgfault, u64::MAX);
    assert!(values.is_empty());
}

#[test]
fn names_that_are_no_text_read_back_the_same() {
    let text = [&b"balloon_"[..], &[0xff; 120], b" 7\n"].concat();
    let read = Values::<Vmstat>::parse(&text, |bad| panic!("{}", bad.why));
    let mut printed = String::new();
    read.print(&mut printed);
    let again = Values::<Vmstat>::parse(printed.as_bytes(), |bad| panic!("{}", bad.why));
    assert_eq!((read.unknown().len(), read.unknown()), (1, again.unknown()));
}
