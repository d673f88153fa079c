//! Accounts of runs that nobody made, and the sentences that they get.

use lotsfree_run::{Histogram, Spent};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A thousand requests a second that take 80 µs, all on a CPU.
fn work(seconds: u64) -> Work {
    let operations = 1000 * seconds;
    let mut latency = Histogram::default();
    latency.record_many(80_000, operations);
    let spent =
        Spent { user: 70_000 * operations, system: 10_000 * operations, idle: SECOND, ..Spent::default() };
    Work { operations, seconds: seconds as f64, latency, spent, ..Work::default() }
}

/// A minute as fast as the ten undisturbed seconds before it, in which nothing was reclaimed.
fn calm(label: &str) -> Account {
    let moved = Moved {
        direct_scan: Some(0),
        kswapd_scan: Some(0),
        direct_steal: Some(0),
        kswapd_steal: Some(0),
        allocstall: Some(0),
        major_faults: Some(0),
        swap_in: Some(0),
        swap_out: Some(0),
        page_in: Some(0),
        page_out: Some(0),
        ..Moved::default()
    };
    Account {
        label: label.to_owned(),
        work: work(60),
        undisturbed: Some(work(10)),
        moved,
        page: 4096.0,
        sampled: true,
        on_model: true,
        ..Account::default()
    }
}

/// The same threads spend `share` of their time in a wait, and do less for it.
fn slowed(label: &str, share: f64, wait: impl Fn(&mut Spent) -> &mut u64) -> Account {
    let mut account = calm(label);
    let whole = busy(&account.work.spent);
    let work = &mut account.work;
    let keep = |n: u64| (n as f64 * (1.0 - share)) as u64;
    work.operations = keep(work.operations);
    (work.spent.user, work.spent.system) = (keep(work.spent.user), keep(work.spent.system));
    *wait(&mut work.spent) += (whole * share) as u64;
    work.latency = Histogram::default();
    work.latency.record_many(500_000, work.operations);
    account
}

fn kswapd_swaps(label: &str) -> Account {
    let mut account = slowed(label, 0.83, |spent| &mut spent.io);
    account.work.major_faults = 24_000;
    let moved = &mut account.moved;
    (moved.kswapd_scan, moved.kswapd_steal) = (Some(9_000_000), Some(4_000_000));
    (moved.swap_out, moved.swap_in) = (Some(314_573), Some(60_000));
    moved.page_out = Some(16 << 20);
    account
}

fn judged(run: &Account, base: Option<&Account>) -> Sentence {
    judge(run, &Others { base: base.cloned(), beside: None })
}

fn mechanism(run: &Account, baseline: Option<&Account>) -> Mechanism {
    judged(run, baseline).mechanism
}

#[test]
fn swapping_by_kswapd() {
    assert_eq!(
        judged(&kswapd_swaps("base"), None),
        said(
            Mechanism::Swap,
            "kswapd swapped out 1.20 GiB while files passed through the cache: bringing 234 MiB back with \
             24,000 major faults took 83 % of the requests' time; the median request took 500 µs instead of 80.0 µs before"
                .to_owned()
        )
    );
    let mut earlier = kswapd_swaps("base");
    earlier.moved.swap_out = Some(0);
    assert!(judged(&earlier, None).text.starts_with("memory that had been swapped out earlier came back"));
}

#[test]
fn direct_io_reclaims_nothing() {
    let mut direct = calm("direct");
    direct.direct = vec!["copy".to_owned()];
    assert_eq!(
        judged(&direct, Some(&kswapd_swaps("base"))).text,
        "the direct I/O of copy bypasses the cache: nothing was reclaimed (with base, 15.3 GiB were)"
    );
    assert_eq!(mechanism(&direct, Some(&kswapd_swaps("base"))), Mechanism::NothingReclaimed);
    assert_eq!(mechanism(&calm("small"), Some(&kswapd_swaps("base"))), Mechanism::NothingReclaimed);
    assert_eq!(mechanism(&calm("alone"), None), Mechanism::Undisturbed);
}

#[test]
fn zone_reclaim_is_told_from_direct_reclaim_by_its_entries() {
    let mut run = slowed("on", 0.4, |spent| &mut spent.io);
    run.zone_reclaim = true;
    run.work.major_faults = 30_000;
    run.moved.direct_scan = Some(1_200_000);
    assert_eq!(
        judged(&run, None).text,
        "zone reclaim: tasks looked for memory on their own node, 1,200,000 direct scans, none by kswapd; pages in \
         use went with it: 30,000 major faults took 40 % of the requests' time; the median request took 500 µs instead \
         of 80.0 µs before"
    );
    let mut entered = run.clone();
    entered.moved.allocstall = Some(20_000);
    assert_ne!(mechanism(&entered, None), Mechanism::ZoneReclaim);
    let mut off = run.clone();
    off.zone_reclaim = false;
    assert_eq!(mechanism(&off, None), Mechanism::FileReread);
    let mut idle = run;
    idle.moved.direct_scan = Some(FEW - 1);
    assert_ne!(mechanism(&idle, None), Mechanism::ZoneReclaim);
}

#[test]
fn file_pages_read_again() {
    let mut run = slowed("base", 0.5, |spent| &mut spent.io);
    run.work.major_faults = 5000;
    (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(800_000), Some(700_000));
    run.moved.refault_file = Some(262_144);
    assert_eq!(
        judged(&run, None).text,
        "kswapd dropped file pages that were in use (1 GiB were read again soon after): 5,000 major faults took \
         50 % of the requests' time; the median request took 500 µs instead of 80.0 µs before"
    );
    run.moved.kswapd_steal = Some(0);
    assert!(judged(&run, None).text.starts_with("file pages that were not in memory had to be read"));
}

#[test]
fn each_wait_has_its_mechanism() {
    let mut reclaim = slowed("r", 0.3, |spent| &mut spent.reclaim);
    reclaim.moved.direct_scan = Some(40_000);
    assert_eq!(mechanism(&reclaim, None), Mechanism::DirectReclaim);
    let mut throttled = slowed("t", 0.3, |spent| &mut spent.throttled);
    assert_eq!(
        judged(&throttled, None).text,
        "held by the dirty limit: waiting for writeback took 30 % of the requests' time; the median request took 500 µs \
         instead of 80.0 µs before"
    );
    throttled.moved.direct_scan = Some(40_000);
    assert_eq!(mechanism(&throttled, None), Mechanism::Throttled);
    assert_eq!(mechanism(&slowed("d", 0.3, |spent| &mut spent.io), None), Mechanism::Device);
    assert_eq!(mechanism(&slowed("c", 0.3, |spent| &mut spent.runnable), None), Mechanism::Cpu);
    assert_eq!(mechanism(&slowed("s", 0.3, |spent| &mut spent.system), None), Mechanism::System);
}

#[test]
fn a_wait_that_was_there_before_is_no_cause() {
    let mut run = slowed("d", 0.5, |spent| &mut spent.io);
    run.undisturbed = Some(Work { seconds: 60.0, ..run.work.clone() });
    assert_eq!(mechanism(&run, None), Mechanism::Undisturbed);
    run.undisturbed = None;
    assert_eq!(mechanism(&run, None), Mechanism::Device);
}

#[test]
fn what_is_within_noise_is_alike_and_says_how_near() {
    let base = kswapd_swaps("swappiness 60");
    let mut run = base.clone();
    run.label = "swappiness 30".to_owned();
    run.work.operations = run.work.operations * 99 / 100;
    run.moved.kswapd_scan = Some(9_300_000);
    assert_eq!(
        judged(&run, Some(&base)).text,
        "not distinguishable from swappiness 60: throughput within 1.0 %, equal p99 latency, scans, faults and \
         swapping within 10 %"
    );
    let mut faster = run.clone();
    faster.work.operations = base.work.operations * 105 / 100;
    assert_ne!(mechanism(&faster, Some(&base)), Mechanism::Alike);
    let mut scans = run.clone();
    scans.moved.kswapd_scan = Some(12_000_000);
    assert_ne!(mechanism(&scans, Some(&base)), Mechanism::Alike);
    let mut slow = run;
    slow.work.latency.record_many(9_000_000, slow.work.operations);
    assert_ne!(mechanism(&slow, Some(&base)), Mechanism::Alike);
}

#[test]
fn reclaim_without_a_cost() {
    let mut run = calm("3.11");
    (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(600_000), Some(524_288));
    assert_eq!(
        judged(&run, Some(&kswapd_swaps("base"))).text,
        "kswapd reclaimed 2 GiB of file cache; nothing was swapped out"
    );
    run.moved.swap_out = Some(FEW - 1);
    assert!(judged(&run, None).text.ends_with("hardly anything was swapped out"));
    run.moved.swap_out = Some(FEW);
    assert_eq!(mechanism(&run, None), Mechanism::SwapUnnoticed);
}

#[test]
fn in_a_group_the_limit_counts_and_what_it_does_not_count_is_not_called_nothing() {
    let at_limit = Moved { limit_hits: Some(30_028), major_faults: Some(9), ..Moved::default() };
    let run = Account { in_group: true, moved: at_limit, ..calm("v1") };
    let said = judged(&run, None);
    assert_eq!(said.text, "the group met its limit 30,028 times; no wait of the requests has grown");
    assert_eq!(said.mechanism, Mechanism::GroupLimit);

    let mut thrashes = slowed("v1", 0.6, |spent| &mut spent.io);
    (thrashes.in_group, thrashes.moved) = (true, at_limit);
    thrashes.work.major_faults = 5000;
    thrashes.moved.refault_file = Some(2560);
    let said = judged(&thrashes, None);
    assert_eq!(said.mechanism, Mechanism::FileReread);
    assert_eq!(
        said.text,
        "the group met its limit 30,028 times; 5,000 major faults (10 MiB of file pages came back soon after \
         eviction) took 60 % of the requests' time; the median request took 500 µs instead of 80.0 µs before"
    );
    thrashes.moved.refault_anon = Some(4000);
    assert_eq!(mechanism(&thrashes, None), Mechanism::Swap);

    let never = Moved { limit_hits: Some(0), ..Moved::default() };
    let idle = Account { moved: never, ..run.clone() };
    assert_eq!(mechanism(&idle, None), Mechanism::Undisturbed);
    assert_ne!(mechanism(&run, Some(&idle)), Mechanism::Alike);
    let unknown = Account { moved: Moved::default(), ..run.clone() };
    assert!(judged(&unknown, None).text.starts_with("how often the group met its limit is not known"));

    // What is alike is what a group counts, and repeats tell how many met the limit.
    assert_eq!(
        judged(&run, Some(&run)).text,
        "not distinguishable from v1: equal throughput, equal p99 latency, faults and meetings with the limit \
         within 10 %"
    );
    let repeated = Account { repeats: vec![run.clone(), idle], ..run };
    assert_eq!(
        judged(&repeated, None).text,
        "the group met its limit 30,028 times; no wait of the requests has grown; so in 2 of 3 runs, nothing reclaimed \
         in 1"
    );
}

#[test]
fn a_run_that_ended_before_its_measured_part_is_like_no_other() {
    let ended = Account { unreached: Some(40.0), work: Work::default(), ..calm("ended") };
    for other in [ended.clone(), calm("base")] {
        assert_eq!(
            judged(&ended, Some(&other)),
            said(Mechanism::Unmeasured, "it ended before 40 s, from which on it is measured".to_owned())
        );
        assert_ne!(mechanism(&other, Some(&ended)), Mechanism::Alike);
    }
    let repeated = Account { repeats: vec![ended], ..calm("other") };
    assert_ne!(mechanism(&repeated, Some(&calm("base"))), Mechanism::Alike);
}

#[test]
fn what_is_not_measured_is_not_explained() {
    assert_eq!(mechanism(&Account::default(), None), Mechanism::Unmeasured);
    let mut slow = calm("slow");
    slow.work.operations /= 2;
    (slow.work.spent.user, slow.work.spent.system) = (slow.work.spent.user / 2, slow.work.spent.system / 2);
    let sentence = judged(&slow, None);
    assert_eq!(sentence.mechanism, Mechanism::Unexplained);
    assert!(sentence.text.starts_with("throughput is 50 % of the undisturbed"), "{}", sentence.text);
    // Where a kernel does not say what threads waited for, its counters do.
    slow.work.spent = Spent::default();
    slow.moved.swap_in = Some(10_000);
    assert_eq!(mechanism(&slow, None), Mechanism::Swap);
    let uncounted = Account { moved: Moved::default(), ..calm("old") };
    assert!(judged(&uncounted, None).text.contains("reclaim was not counted"));
    let killed = Account { oom_kills: 2, ..calm("oom") };
    assert_eq!(judged(&killed, None).text, "memory ran out: the OOM killer ended 2 processes");
    let named = |names: &[&str]| {
        let killed = names.iter().map(|name| (*name).to_owned()).collect();
        judged(&Account { oom_kills: names.len() as u64, killed, ..calm("oom") }, None).text
    };
    assert_eq!(named(&["job"]), "memory ran out: the OOM killer ended job");
    assert_eq!(named(&["cache", "job"]), "memory ran out: the OOM killer ended cache and job");
    assert_eq!(named(&["s"; 5]), "memory ran out: the OOM killer ended 5 processes of s");
    let many = named(&["a", "b", "c", "d", "e"]);
    assert_eq!(many, "memory ran out: the OOM killer ended 5 processes, the first of a");
    let one = Account { work: Work { refused: 1, ..work(60) }, ..calm("mode 0") };
    assert_eq!(judged(&one, None).text, "the kernel refused memory: 1 operation failed");
    let refused = Account { work: Work { refused: 1207, ..work(60) }, ..calm("mode 2") };
    assert_eq!(judged(&refused, None).text, "the kernel refused memory: 1,207 operations failed");
}

/// The account with other latencies, given as pairs of a duration and how many requests took it.
fn with_latency(mut account: Account, durations: &[(u64, u64)]) -> Account {
    account.work.latency = Histogram::default();
    durations.iter().for_each(|(ns, requests)| account.work.latency.record_many(*ns, *requests));
    account
}

/// The figures of zone-reclaim's variants `on` and `off`, whose scenario names no undisturbed part.
fn zone_reclaim_on_and_off() -> [Account; 2] {
    let paced = |label| Account { undisturbed: None, ..calm(label) };
    let mut on = with_latency(paced("on"), &[(3_130, 6_130_000), (172_000_000, 14_000)]);
    on.zone_reclaim = true;
    (on.moved.direct_scan, on.moved.kswapd_scan) = (Some(1_674_799_217), Some(134_345));
    let mut off = with_latency(paced("off"), &[(3_130, 6_130_000), (459_000, 14_000)]);
    (off.moved.kswapd_scan, off.moved.kswapd_steal) = (Some(496_130), Some(237_535));
    [on, off]
}

#[test]
fn a_tail_of_172_ms_against_459_us_is_not_called_no_longer() {
    let [on, off] = zone_reclaim_on_and_off();
    let beside = Others { base: None, beside: Some(off.clone()) };
    assert_eq!(
        judge(&on, &beside).text,
        "zone reclaim: tasks looked for memory on their own node, 1,674,799,217 direct scans, 134,345 by kswapd; \
         99 in 100 requests did not notice, one in a thousand took 172 ms instead of 459 µs with off"
    );
    assert_eq!(
        judged(&off, Some(&on)).text,
        "kswapd reclaimed 928 MiB of file cache; nothing was swapped out; 99 in 100 requests took as long, one in a \
         thousand took 459 µs instead of 172 ms with on"
    );
    let alike = Others { base: None, beside: Some(Account { label: "off".to_owned(), ..on.clone() }) };
    assert!(judge(&on, &alike).text.contains("; requests took no longer for it, as long as "));
    // Alone there is nothing to be longer than, but the tail is there.
    assert!(
        judged(&on, None)
            .text
            .ends_with("by kswapd; the median request took 3.13 µs, one in a thousand 172 ms"),
        "{}",
        judged(&on, None).text
    );
}

#[test]
fn swapping_is_unnoticed_only_where_no_percentile_differs() {
    let mut run = calm("base");
    (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(600_000), Some(524_288));
    run.moved.swap_out = Some(262_144);
    assert_eq!(
        judged(&run, None).text,
        "kswapd reclaimed 2 GiB and swapped out 1 GiB, unnoticed by the requests"
    );
    let noticed = with_latency(run, &[(80_000, 59_880), (300_000_000, 120)]);
    assert_eq!(
        judged(&noticed, None).text,
        "kswapd reclaimed 2 GiB and swapped out 1 GiB; 99 in 100 requests did not notice, one in a thousand took 300 ms \
         instead of 80.0 µs before"
    );
}

#[test]
fn runs_whose_tails_differ_are_not_alike() {
    let base = calm("base");
    let run = with_latency(calm("other"), &[(80_000, 59_880), (300_000_000, 120)]);
    assert_eq!(mechanism(&calm("other"), Some(&base)), Mechanism::Alike);
    assert_ne!(mechanism(&run, Some(&base)), Mechanism::Alike);
}

#[test]
fn the_measured_part_is_told_from_the_run() {
    let gib = 262_144;
    let mut run = calm("base");
    run.outside = Some(Outside { seconds: 10.0, freed_before: 186 * gib, ..Outside::default() });
    assert_eq!(judged(&run, None).text, "in the measured 10 s nothing was reclaimed; before it 186 GiB were");
    assert_eq!(
        judged(&run, Some(&kswapd_swaps("other"))).text,
        "in the measured 10 s nothing was reclaimed (with other, 15.3 GiB were); before it 186 GiB were"
    );
    run.outside =
        Some(Outside { seconds: 10.0, freed_before: gib, freed_after: 2 * gib, ..Outside::default() });
    assert!(judged(&run, None).text.ends_with("; before it 1 GiB were, after it 2 GiB"));
    run.outside = Some(Outside { seconds: 10.0, freed_after: 2 * gib, ..Outside::default() });
    assert!(judged(&run, None).text.ends_with("; after it 2 GiB were"));
    run.outside = Some(Outside { seconds: 10.0, freed_before: FEW - 1, ..Outside::default() });
    assert_eq!(judged(&run, None).text, "nothing was reclaimed");

    // So are swap and what had to be read again.
    let before =
        Outside { seconds: 10.0, freed_before: 3 * gib, swapped_out_before: 2 * gib, ..Outside::default() };
    (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(600_000), Some(524_288));
    run.outside = Some(before.clone());
    assert_eq!(
        judged(&run, None).text,
        "kswapd reclaimed 2 GiB of file cache; nothing was swapped out, but 2 GiB were before"
    );
    let mut back = kswapd_swaps("base");
    (back.moved.swap_out, back.outside) = (Some(0), Some(before.clone()));
    assert!(
        judged(&back, None).text.starts_with("memory came back, of 2 GiB that had been swapped out before: ")
    );
    let mut read = slowed("base", 0.5, |spent| &mut spent.io);
    (read.work.major_faults, read.outside) = (5000, Some(before));
    assert!(
        judged(&read, None)
            .text
            .starts_with("file pages that were not in memory had to be read (3 GiB were reclaimed before): ")
    );
}

#[test]
fn what_came_back_is_told_where_throughput_did_not_suffer() {
    let mut run = calm("3.0");
    run.outside = Some(Outside { seconds: 60.0, freed_before: 262_144, ..Outside::default() });
    (run.work.major_faults, run.moved.swap_in) = (390, Some(2_944));
    assert_eq!(
        judged(&run, None).text,
        "in the measured 60 s nothing was reclaimed; before it 1 GiB were; 390 major faults brought 11.5 MiB back from swap"
    );
    run.moved.swap_in = Some(0);
    assert!(judged(&run, None).text.ends_with("; 390 major faults read from files"));
    run.work.major_faults = FEW - 1;
    assert!(judged(&run, None).text.ends_with("before it 1 GiB were"));
}

#[test]
fn a_throughput_above_the_undisturbed_one_is_no_gain() {
    let mut run = calm("swappiness 0");
    (run.moved.kswapd_scan, run.moved.kswapd_steal) = (Some(600_000), Some(524_288));
    // In step with each other, threads wait for a CPU, and fewer requests end.
    let in_step = |wait: fn(&mut Spent) -> &mut u64| {
        let mut before = work(10);
        let share = (busy(&before.spent) * 0.5) as u64;
        before.operations = before.operations * 100 / 127;
        *wait(&mut before.spent) += share;
        Some(before)
    };
    run.undisturbed = in_step(|spent| &mut spent.runnable);
    assert_eq!(
        judged(&run, None).text,
        "kswapd reclaimed 2 GiB of file cache; nothing was swapped out; that it is 27 % faster than \
         undisturbed is not to be believed: waiting for a CPU took 33 % of the requests' time there, as it does when \
         threads run in lockstep"
    );
    run.undisturbed = in_step(|spent| &mut spent.io);
    assert!(judged(&run, None).text.ends_with(
        "not to be believed: waiting for devices took 33 % of the requests' time there: the undisturbed part was not \
         undisturbed"
    ));
    // No lockstep of the model's threads is to blame for a kernel's figure.
    run.on_model = false;
    run.undisturbed = in_step(|spent| &mut spent.runnable);
    assert!(judged(&run, None).text.ends_with("nothing was swapped out"));
    run.on_model = true;
    let slight = Work { operations: 10_000 * 100 / 104, ..work(10) };
    run.undisturbed = Some(slight);
    assert!(!judged(&run, None).text.contains("faster"));
}

#[test]
fn of_repeats_the_sentence_is_what_most_of_them_show() {
    let mut run = calm("base");
    run.repeats = vec![kswapd_swaps("base"), kswapd_swaps("base")];
    let sentence = judged(&run, None);
    assert_eq!(sentence.mechanism, Mechanism::Swap);
    assert!(sentence.text.contains("; so in 2 of 3 runs, nothing reclaimed in 1; the"), "{}", sentence.text);
    run.repeats = vec![calm("base")];
    assert!(judged(&run, None).text.ends_with("; so in both runs"));
    run.repeats = vec![calm("base"), calm("base")];
    assert!(judged(&run, None).text.ends_with("; so in all 3 runs"));
    run.repeats[1].oom_kills = 1;
    assert!(judged(&run, None).text.ends_with("; so in 2 of 3 runs, the OOM killer in 1"));
}

#[test]
fn what_repeats_differ_by_distinguishes_no_runs() {
    let with = |label: &str, percent: [u64; 3]| {
        let mut all = percent.map(|percent| {
            let mut one = kswapd_swaps(label);
            one.work.operations = one.work.operations * percent / 100;
            one
        });
        let [first, rest @ ..] = &mut all;
        first.repeats = rest.to_vec();
        first.clone()
    };
    let base = with("base", [100, 110, 120]);
    let sentence = judged(&with("other", [95, 100, 105]), Some(&base));
    assert_eq!(sentence.mechanism, Mechanism::Alike);
    assert!(sentence.text.contains("throughput within 9.1 %"), "{}", sentence.text);
    assert_ne!(judged(&with("other", [80, 85, 90]), Some(&base)).mechanism, Mechanism::Alike);
    let single = kswapd_swaps("base");
    let less = Account { work: with("other", [91; 3]).work, ..kswapd_swaps("other") };
    assert_ne!(
        judged(&less, Some(&single)).mechanism,
        Mechanism::Alike,
        "without repeats 9 % are a difference"
    );
}

#[test]
fn a_pool_that_nobody_uses_is_named_whatever_else_went_on() {
    let short = |account: Account| Account { idle_pool: Some(1022.0 * 1048576.0), ..account };
    let text = judge(&short(calm("short")), &Others::default()).text;
    assert_eq!(text, "nothing was reclaimed; 1022 MiB of huge pages lie idle");
    let text = judge(&short(kswapd_swaps("short")), &Others::default()).text;
    assert!(text.contains("; 1022 MiB of huge pages lie idle"), "{text}");
    // As fast as without a pool, and yet not the same.
    let without = Others { base: Some(calm("no pool")), ..Others::default() };
    let sentence = judge(&short(calm("short")), &without);
    assert_ne!(sentence.mechanism, Mechanism::Alike);
    assert!(sentence.text.contains("; 1022 MiB of huge pages lie idle"), "{}", sentence.text);
    assert_eq!(judge(&calm("enough"), &without).mechanism, Mechanism::Alike);
}
