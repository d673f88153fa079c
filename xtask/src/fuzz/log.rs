//! Reads the figures of a run from libFuzzer's standard error.

/// The figures of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    /// Inputs that were executed, the corpus among them.
    pub(super) executions: u64,
    /// Edges of the control flow that were taken.
    pub(super) edges: u64,
    /// Edges distinguished by how often they were taken, and comparisons.
    pub(super) features: u64,
    /// Executions since the last one that took a new edge, or since the corpus was read.
    pub(super) since: u64,
}

impl Log {
    /// Reads lines such as `#4096 NEW    cov: 812 ft: 3120 corp: …`. There is one for each input that brought
    /// something new, and for every power of two.
    pub(super) fn parse(text: &str) -> Self {
        let mut log = Log::default();
        let mut last = 0;
        for line in text.lines() {
            if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
                log.executions = count.trim().parse().unwrap_or(log.executions);
            }
            let Some((number, rest)) = line.strip_prefix('#').and_then(|line| line.split_once('\t')) else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            log.executions = number;
            let figure = |name: &str| {
                let (_, after) = rest.split_once(name)?;
                after.split_whitespace().next()?.parse().ok()
            };
            let edges = figure(" cov: ").unwrap_or(log.edges);
            log.features = figure(" ft: ").unwrap_or(log.features);
            if edges > log.edges || rest.starts_with("INITED") {
                last = number;
            }
            log.edges = edges;
        }
        log.since = log.executions.saturating_sub(last);
        log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
INFO: Seed: 1
#27\tpulse  cov: 50 ft: 70 exec/s: 0 rss: 40Mb
#30\tINITED cov: 100 ft: 300 corp: 9/1Kb exec/s: 0 rss: 40Mb
#64\tREDUCE cov: 100 ft: 300 corp: 9/1Kb lim: 4 exec/s: 0 rss: 40Mb L: 3/9 MS: 1 EraseBytes-
#90\tNEW    cov: 100 ft: 301 corp: 10/1Kb lim: 4 exec/s: 0 rss: 40Mb L: 3/9 MS: 1 EraseBytes-
";

    #[test]
    fn executions_are_counted_since_the_last_new_edge() {
        let log = Log::parse(TEXT);
        assert_eq!(log, Log { executions: 90, edges: 100, features: 301, since: 60 });
        let more = "#200\tNEW    cov: 101 ft: 310 corp: 11/1Kb\n#256\tpulse  cov: 101 ft: 310 corp: 11/1Kb\n\
                    #300\tDONE   cov: 101 ft: 310 corp: 11/1Kb\nstat::number_of_executed_units: 300\n";
        let log = Log::parse(&format!("{TEXT}{more}"));
        assert_eq!(log, Log { executions: 300, edges: 101, features: 310, since: 100 });
    }

    #[test]
    fn a_run_that_crashed_at_once_has_no_figures() {
        assert_eq!(Log::parse("thread panicked at x.rs\n"), Log::default());
    }
}
