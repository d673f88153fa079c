//! Checks that the table is consistent and agrees with the running kernel.

use std::collections::BTreeSet;
use std::fs;

use super::*;

#[test]
fn names_are_unique_and_twins_know_each_other() {
    let names: BTreeSet<&str> = ALL.iter().map(|setting| setting.name).collect();
    assert_eq!(names.len(), ALL.len());
    for setting in ALL {
        if let Some(twin) = setting.twin {
            assert_eq!(find(twin).unwrap().twin, Some(setting.name));
        }
    }
    let pairs: Vec<_> = pairs().map(|(later, earlier)| (later.name, earlier.name)).collect();
    let expected = [
        (DIRTY_BYTES, DIRTY_RATIO),
        (DIRTY_BACKGROUND_BYTES, DIRTY_BACKGROUND_RATIO),
        (OVERCOMMIT_KBYTES, OVERCOMMIT_RATIO),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn every_row_has_an_oldest_range_and_default_and_ascends() {
    for setting in ALL {
        let name = setting.name;
        assert_eq!(setting.accepts.first().map(|(since, _)| *since), Some(Release::ANY), "{name}");
        assert_eq!(setting.default.first().map(|(since, _)| *since), Some(Release::ANY), "{name}");
        assert!(setting.accepts.is_sorted_by_key(|(since, _)| *since), "{name}");
        assert!(setting.default.is_sorted_by_key(|(since, _)| *since), "{name}");
    }
}

#[test]
fn a_release_has_what_was_decided_before_it() {
    let swappiness = find(SWAPPINESS).unwrap();
    assert_eq!(swappiness.accepts(Release(5, 7)), Accepts::Range(0, 100));
    assert_eq!(swappiness.accepts(Release(5, 8)), Accepts::Range(0, 200));
    assert_eq!(swappiness.accepts(Release(2, 4)), Accepts::Range(0, 100));
    assert_eq!(swappiness.default_number(Release::NEWEST), Some(60));
    let scale = find(WATERMARK_SCALE_FACTOR).unwrap();
    assert!(!scale.is_in(Release(4, 5)) && scale.is_in(Release(4, 6)));
    let order = find(NUMA_ZONELIST_ORDER).unwrap();
    assert!(order.is_in(Release(4, 13)) && !order.is_in(Release(4, 14)));
}

#[test]
fn values_are_read_as_they_are_accepted() {
    let accepts = |name: &str| find(name).unwrap().accepts(Release::NEWEST);
    assert_eq!(accepts(SWAPPINESS).read(" 7\n"), Some(Value::Number(7)));
    assert_eq!(accepts(SWAPPINESS).read("201"), None);
    assert_eq!(accepts(TRANSPARENT_HUGEPAGE_ENABLED).read("never"), Some(Value::Word("never")));
    assert_eq!(accepts(TRANSPARENT_HUGEPAGE_ENABLED).read("ever"), None);
    assert_eq!(accepts(LOWMEM_RESERVE_RATIO).read("256 32"), Some(Value::Numbers(vec![256, 32])));
    assert_eq!(accepts(LOWMEM_RESERVE_RATIO).read(""), None);
    assert_eq!(accepts(LOWMEM_RESERVE_RATIO).read("1 2 3 4 5 6"), None);
}

#[test]
fn descriptions_end_in_the_unit_and_what_zero_does() {
    let of = |name: &str| find(name).unwrap().description();
    assert_eq!(of(DIRTY_WRITEBACK_CENTISECS), "how often the flusher looks, in 1/100 s; 0: never");
    assert_eq!(of(NR_HUGEPAGES), "huge pages of the default size that are reserved");
}

/// The running kernel's values are in the ranges of the table, or are defaults outside of any range: 0 of a
/// setting whose twin is in force, and the largest of limits.
#[test]
fn what_this_kernel_has_set_is_accepted() {
    let mut compared = 0;
    let here =
        |setting: &&Setting| setting.is_in(Release::NEWEST) && !matches!(setting.place, Place::Block(_));
    for setting in ALL.iter().filter(here) {
        let Ok(text) = fs::read_to_string(setting.path()) else { continue };
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
        let value = chosen.unwrap_or(&text).trim();
        // The file of `lru_gen` has hexadecimal digits.
        let value = value
            .strip_prefix("0x")
            .map_or(value.to_owned(), |digits| digits.trim_start_matches('0').to_owned());
        let value = if value.is_empty() { "0".to_owned() } else { value };
        let accepted = setting.accepts(Release::NEWEST).read(&value).is_some();
        let default =
            setting.default_number(Release::NEWEST).is_some_and(|default| value == default.to_string());
        assert!(accepted || default || setting.twin.is_some() && value == "0", "{}: {value}", setting.name);
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
