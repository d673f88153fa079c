//! No input panics; an answer can be printed and written, an error names what would be accepted.
#![allow(clippy::unwrap_used)]

use lotsfree_size::{
    Answer, CacheFigures, Collector, HostMemory, HostPool, HostShared, HugepagesInput, Jvm, Listed,
    OvercommitInput, PagetablesInput, SizeError, SwapInput, Value, WatermarksInput, hugepages, overcommit,
    pagetables, swap, watermarks,
};
use lotsfree_units::Bytes;
use proptest::prelude::*;

/// Any number, with the plausible and the extreme ones as likely as the rest.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..10_000u64,
        (0..64u32).prop_map(|shift| 1 << shift),
        (0..64u32).prop_map(|shift| (1 << shift) - 1),
        (20..50u32, 1..100u64).prop_map(|(shift, n)| n << shift),
        Just(u64::MAX),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    number().prop_map(Bytes)
}

fn some(inner: impl Strategy<Value = Bytes>) -> impl Strategy<Value = Option<Bytes>> {
    prop::option::of(inner)
}

fn page() -> impl Strategy<Value = Option<Bytes>> {
    let sizes = vec![Bytes::kib(4), Bytes::kib(16), Bytes::kib(64)];
    some(prop_oneof![4 => prop::sample::select(sizes), 1 => bytes()])
}

fn huge_page() -> impl Strategy<Value = Option<Bytes>> {
    let sizes = vec![Bytes::mib(2), Bytes::gib(1), Bytes::kib(64)];
    some(prop_oneof![4 => prop::sample::select(sizes), 1 => bytes()])
}

fn kernel() -> impl Strategy<Value = Option<String>> {
    let names = ["linux-2.6.32-rhel6", "3.0.1", "3.10.0", "4.4.0", "5.4.0", "6.1.0-18-amd64", "6.18.44", "x"];
    prop::option::of(prop::sample::select(names.map(str::to_owned).to_vec()))
}

fn nodes() -> impl Strategy<Value = Option<u32>> {
    prop::option::of(prop_oneof![1..=8u32, any::<u32>()])
}

/// What must hold of any outcome.
fn sound(outcome: Result<Answer, SizeError>) -> Result<Option<Answer>, TestCaseError> {
    match outcome {
        Err(error) => {
            let text = error.to_string();
            prop_assert!(
                text.contains("accepted") || text.contains("give ") || text.contains("both"),
                "{}",
                text
            );
            Ok(None)
        }
        Ok(answer) => {
            for width in [0, 60, 200] {
                for verbose in [false, true] {
                    prop_assert!(answer.to_text(width, verbose).contains("=> "));
                }
            }
            prop_assert!(!answer.title.is_empty() && !answer.result.text.is_empty());
            for step in &answer.steps {
                if let Value::Percent(percent) = step.value {
                    prop_assert!(percent.is_finite() && percent >= 0.0, "{:?}", step);
                }
            }
            let json = serde_json::to_string(&answer).unwrap();
            prop_assert_eq!(serde_json::from_str::<Answer>(&json).unwrap().steps.len(), answer.steps.len());
            Ok(Some(answer))
        }
    }
}

fn jvm() -> impl Strategy<Value = Jvm> {
    (bytes(), bytes(), bytes()).prop_map(|(heap, metaspace, code_cache)| Jvm { heap, metaspace, code_cache })
}

fn collector() -> impl Strategy<Value = Collector> {
    (0..Collector::ALL.len()).prop_map(|index| Collector::ALL[index].1)
}

fn host() -> impl Strategy<Value = HostMemory> {
    let pool =
        (bytes(), number(), number()).prop_map(|(size, total, promised)| HostPool { size, total, promised });
    let shared = (bytes(), some(bytes()), number(), any::<bool>(), any::<Option<bool>>());
    let shared = shared.prop_map(|(size, resident, mappers, sysv, in_base_pages)| HostShared {
        size,
        resident,
        mappers,
        sysv,
        in_base_pages,
    });
    let lists = (
        prop::option::of(prop::collection::vec(pool, 0..3)),
        prop::option::of(prop::collection::vec(shared, 0..3)),
    );
    let amounts = (some(bytes()), some(bytes()), some(bytes()), some(bytes()), some(bytes()), some(bytes()));
    (amounts, lists).prop_map(
        |((anon, shmem, slab, page_tables, kernel_stacks, swapped), (pools, shared))| HostMemory {
            anon,
            shmem,
            slab,
            page_tables,
            kernel_stacks,
            swapped,
            pools,
            shared,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn hugepages_answers(
        segments in prop::collection::vec(bytes(), 0..6),
        listed in prop::collection::vec(bytes(), 0..3),
        (host, of_host) in (prop::option::of(host()), any::<bool>()),
        (postgres_pages, postgres_vmpeak) in (prop::option::of(number()), some(bytes())),
        (jvms, collector) in (prop::collection::vec(jvm(), 0..2), collector()),
        sessions in prop::option::of(number()),
        (ram, others) in (some(bytes()), some(bytes())),
        nodes in nodes(),
        (page, huge_page, locked, kernel) in (page(), huge_page(), bytes(), kernel()),
        shm_group in any::<Option<u32>>(),
    ) {
        let listed = listed.into_iter().map(|size| Listed { shmid: None, size, nattch: None }).collect();
        let input = HugepagesInput {
            segments, listed, host, of_host, postgres_pages, postgres_vmpeak, jvms, collector, sessions, ram, others, nodes, page, huge_page, locked, kernel, shm_group,
            ..HugepagesInput::default()
        };
        if let Some(answer) = sound(hugepages(&input))? {
            let Value::HugePages(pages) = answer.result.value else { panic!("{:?}", answer.result) };
            let huge_page = huge_page.unwrap_or(Bytes(page.map_or(4096, |page| page.0).pow(2) / 8));
            // The pool holds everything asked for, and fits.
            let held: u64 = input.segments.iter().map(|size| size.units_of(huge_page)).sum();
            prop_assert!(pages > held || held == 0);
            prop_assert!(ram.is_none_or(|ram| huge_page.times(pages) < ram));
        }
    }

    #[test]
    fn pagetables_answers(
        host in prop::option::of(host()),
        (mapping, processes, page, five_levels) in (bytes(), number(), page(), any::<bool>()),
        (ram, kernel) in (some(bytes()), kernel()),
    ) {
        let input = PagetablesInput { mapping, processes, page, five_levels, ram, host, kernel, sourced: false };
        sound(pagetables(&input))?;
    }

    #[test]
    fn swap_answers(
        (ram, hugetlb) in (some(bytes()), some(bytes())),
        (cold, bandwidth, current) in (some(bytes()), some(bytes()), some(bytes())),
    ) {
        let input = SwapInput { ram, hugetlb, cold, bandwidth, current, sourced: false };
        sound(swap(&input))?;
    }

    #[test]
    fn overcommit_answers(
        (ram, hugetlb, swap, committed) in (some(bytes()), some(bytes()), some(bytes()), some(bytes())),
        (ratio, kbytes, wanted) in (prop::option::of(number()), some(bytes()), some(bytes())),
        (admin_reserve, user_reserve, vm_size, admin) in (some(bytes()), some(bytes()), bytes(), any::<bool>()),
        cache in prop::option::of((bytes(), bytes(), bytes())),
        (page, kernel) in (page(), kernel()),
    ) {
        let cache = cache.map(|(free, file, shmem)| CacheFigures { free, file, shmem, ..CacheFigures::default() });
        let input = OvercommitInput {
            sourced: false,
            ram, hugetlb, swap, committed, ratio, kbytes, wanted, admin_reserve, user_reserve, admin, vm_size, cache,
            page, kernel,
        };
        if let (Some(answer), Some(wanted)) = (sound(overcommit(&input))?, wanted)
            && let Value::Kib(kib) = answer.result.value
        {
            // The setting, put back in, gives the wanted limit to the page.
            let again = OvercommitInput { ratio: None, kbytes: Some(Bytes::kib(kib)), wanted: None, ..input };
            let Value::Bytes(limit) = overcommit(&again).unwrap().result.value else { panic!() };
            prop_assert!(limit.0.abs_diff(wanted.0) <= 2 * page.map_or(4096, |page| page.0), "{} {}", limit.0, wanted.0);
        }
    }

    #[test]
    fn watermarks_answers(
        (ram, nodes, zones, no_thp) in (some(bytes()), nodes(), prop::option::of(number()), any::<bool>()),
        scale_factor in prop::option::of(prop_oneof![1..=3000u64, number()]),
        wake_ms in prop::option::of(prop_oneof![1..=1000u64, number()]),
        (min_free, burst, page, kernel) in (some(bytes()), some(bytes()), page(), kernel()),
    ) {
        let input = WatermarksInput { ram, nodes, zones, no_thp, scale_factor, min_free, burst, wake_ms, page, kernel, sourced: false };
        sound(watermarks(&input))?;
    }
}

/// Random amounts rarely satisfy every condition at once; these do, over the whole range.
#[test]
fn plausible_hosts_are_answered() {
    for shift in 33..=46 {
        let ram = Bytes(1 << shift);
        let quarter = Bytes(ram.0 / 4);
        let input = HugepagesInput {
            segments: vec![quarter, quarter],
            sessions: Some(500),
            ram: Some(ram),
            nodes: Some(4),
            ..HugepagesInput::default()
        };
        hugepages(&input).unwrap();
        pagetables(&PagetablesInput { mapping: quarter, processes: 1000, ..PagetablesInput::default() })
            .unwrap();
        swap(&SwapInput { ram: Some(ram), hugetlb: Some(quarter), ..SwapInput::default() }).unwrap();
        overcommit(&OvercommitInput {
            ram: Some(ram),
            hugetlb: Some(quarter),
            wanted: Some(quarter),
            ..OvercommitInput::default()
        })
        .unwrap();
        watermarks(&WatermarksInput {
            ram: Some(ram),
            nodes: Some(4),
            burst: Some(Bytes::gib(1)),
            ..WatermarksInput::default()
        })
        .unwrap();
    }
}
