use std::ops::ControlFlow;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).unwrap();
    let mut scenario = lotsfree_scenario::Scenario::parse(&text, &args[1]).unwrap_or_else(|e| {
        eprintln!("{e}");
        std::process::exit(2)
    });
    let verbose = args.iter().any(|a| a == "-v");
    let sets: Vec<(String, String)> =
        args.iter().filter_map(|a| a.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
    let refs: Vec<(&str, &str)> = sets.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    if !refs.is_empty() {
        scenario = scenario.with(&refs).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(2)
        });
    }
    let only: Vec<&String> = args[2..].iter().filter(|a| !a.contains('=') && *a != "-v").collect();
    for case in scenario.cases(None).unwrap() {
        let label = case.sweep.as_ref().map_or(String::new(), |s| s.label.clone());
        if !only.is_empty() && !only.iter().any(|o| **o == case.variant || label.starts_with(o.as_str())) {
            continue;
        }
        let t = std::time::Instant::now();
        let facts = lotsfree_engine::facts(&case).unwrap();
        let mut sink = lotsfree_run::Memory::default();
        lotsfree_engine::simulate(&case, &mut sink, &mut |_| ControlFlow::Continue(())).unwrap_or_else(|e| {
            eprintln!("{e}");
            std::process::exit(2)
        });
        let run = sink.finish(facts, case.to_toml(), lotsfree_run::State::Complete);
        println!("== {} {} ({:.2} s)", case.variant, label, t.elapsed().as_secs_f64());
        let s = run.summary();
        if verbose {
            println!("{}", serde_json::to_string_pretty(&s).unwrap());
        } else {
            let j = serde_json::to_value(&s).unwrap();
            let w = j.get("window").or(j.get("measured")).unwrap_or(&j["whole"]);
            let w = if w.is_null() { &j["whole"] } else { w };
            for a in w["actors"].as_array().unwrap() {
                println!(
                    "   {}: {:.0}/s rel {:.3} lat mean {:.1}us p99 {:.1}us max {:.1}ms maj {} spent {}",
                    a["actor"].as_str().unwrap(),
                    a["per_second"].as_f64().unwrap(),
                    a["relative"].as_f64().unwrap_or(0.0),
                    a["latency"]["mean"].as_f64().unwrap_or(0.0) / 1e3,
                    a["latency"]["p99"].as_f64().unwrap_or(0.0) / 1e3,
                    a["latency"]["max"].as_f64().unwrap_or(0.0) / 1e6,
                    a["major_faults"],
                    a["spent"]
                );
            }
            println!("   {}", w["moved"]);
            let l = &w["levels"];
            let g = |n: &str| {
                format!(
                    "{:.0}/{}",
                    l[&format!("vmstat.{n}")]["mean"].as_f64().unwrap_or(0.0) / 256.0,
                    l[&format!("vmstat.{n}")]["max"].as_f64().unwrap_or(0.0) as u64 / 256
                )
            };
            println!(
                "   MiB mean/max: AA {} IA {} AF {} IF {} free {} dirty {} wb {}",
                g("nr_active_anon"),
                g("nr_inactive_anon"),
                g("nr_active_file"),
                g("nr_inactive_file"),
                g("nr_free_pages"),
                g("nr_dirty"),
                g("nr_writeback")
            );
            for z in w["zones"].as_array().unwrap() {
                println!(
                    "   {} {} low {} free mean {:.0} min {} last {}",
                    z["node"],
                    z["zone"],
                    z["low"],
                    z["free"]["mean"].as_f64().unwrap_or(0.0),
                    z["free"]["min"],
                    z["free"]["last"]
                );
            }
        }
    }
}
