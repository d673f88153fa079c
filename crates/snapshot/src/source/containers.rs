//! What tools say of containers and pods, as files of control groups.
//!
//! | text | becomes |
//! |---|---|
//! | rows of `docker stats`: `web  0.5%  1.9GiB / 2GiB  95%` | `memory.current`, `memory.max` of a group; usage is without the inactive files |
//! | `kubectl describe pod`: `Reason: OOMKilled`, `memory: 512Mi` below `Limits:` | `memory.events`, `memory.max` |
//! | `kubectl describe node`: `System OOM encountered, victim process: …` | `oom_kill` of `proc/vmstat` |
//! | there: `memory: 8148720Ki` below `Capacity:` | `MemTotal` |
//! | `kubectl get pods`: `api-5d9c  0/1  OOMKilled  5`; `reason: OOMKilled` of YAML; `"OOMKilled": true` of Docker | `memory.events` of the pod or container |
//! | `systemctl status`: `Memory: 3.9G (high: 3.5G max: 4.0G)` | `memory.current`, `memory.high`, `memory.max` of the unit |
//!
//! Rows of `docker stats` that all have the same limit have none, unless it is a round figure: it is the
//! host's memory.

use std::collections::BTreeMap;

use super::MemorySource;

const GROUPS: &str = "sys/fs/cgroup";
/// At most this many containers are taken.
const MOST: usize = 512;

/// Which part of `kubectl describe` is open.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Part {
    #[default]
    None,
    Capacity,
    Limits,
}

/// Reads the lines of a text that tell of containers.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    /// Usage and limit in bytes, by name.
    stats: BTreeMap<String, (u64, u64)>,
    /// Whether a limit was a round figure, as people set them: what the host has never is.
    round: bool,
    part: Part,
    /// The pod that is described, the limit that was read last, and kills by container.
    pod: Option<String>,
    limit: Option<u64>,
    killed: u64,
    /// Pods of a list that were killed at their limits.
    pods: BTreeMap<String, u64>,
    /// The unit whose status is shown, and the figures of units: current, high and max.
    unit: Option<String>,
    units: BTreeMap<String, [Option<u64>; 3]>,
    capacity: Option<u64>,
    system_kills: u64,
}

impl Containers {
    /// Takes a line if it tells of containers.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let words: Vec<&str> = line.split_ascii_whitespace().take(64).collect();
        self.stats(&words) || self.described(line, &words) || self.listed(&words) || self.status(line, &words)
    }

    /// `NAME  READY  STATUS  RESTARTS  AGE` of `kubectl get pods`: a pod whose status is OOMKilled.
    fn listed(&mut self, words: &[&str]) -> bool {
        let Some(at) = words.iter().position(|word| *word == "OOMKilled").filter(|at| (2..=3).contains(at))
        else {
            return false;
        };
        let ready = words[at - 1].split_once('/');
        let counts =
            ready.is_some_and(|(ready, of)| ready.parse::<u16>().is_ok() && of.parse::<u16>().is_ok());
        let restarts = words.get(at + 1).and_then(|word| word.parse::<u64>().ok());
        let (true, Some(restarts)) = (counts && self.pods.len() < MOST, restarts) else { return false };
        self.pods.insert(plain(words[at - 2]), restarts.max(1));
        true
    }

    /// The name and the memory of a unit, as `systemctl status` prints them.
    fn status(&mut self, line: &str, words: &[&str]) -> bool {
        const UNITS: [&str; 3] = [".service", ".scope", ".slice"];
        if let ["\u{25cf}" | "\u{d7}" | "*", name, ..] = words
            && UNITS.iter().any(|suffix| name.ends_with(suffix))
        {
            self.unit = Some(plain(name));
            // The line may be a log's as well.
            return false;
        }
        let ["Memory:", used, limits @ ..] = words else { return false };
        let (Some(unit), Some(used)) = (self.unit.clone(), short(used)) else { return false };
        if !line.starts_with(' ') || self.units.len() >= MOST {
            return false;
        }
        let after = |name: &str| {
            let at = limits.iter().position(|word| word.trim_start_matches('(') == name)?;
            short(limits.get(at + 1)?.trim_end_matches(')'))
        };
        // `(limit: 4.0G)` before systemd 247.
        let limit = after("max:").or_else(|| after("limit:"));
        self.units.insert(unit, [Some(used), after("high:"), limit]);
        true
    }

    /// `CONTAINER  NAME  CPU %  MEM USAGE / LIMIT  MEM %  …`; the name is the second word, or the first.
    fn stats(&mut self, words: &[&str]) -> bool {
        let Some(slash) = words.iter().position(|word| *word == "/").filter(|at| *at >= 3) else {
            return false;
        };
        let share = words.get(slash + 2).is_some_and(|word| word.ends_with('%'));
        let (Some(used), Some(limit)) =
            (bytes(words[slash - 1]), words.get(slash + 1).and_then(|word| bytes(word)))
        else {
            return false;
        };
        let cpu = words[slash - 2].ends_with('%');
        if !share || !cpu || limit == 0 || self.stats.len() >= MOST {
            return false;
        }
        let name = if slash >= 4 { words[1] } else { words[0] };
        let name: String =
            name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(64).collect();
        let named = name.bytes().any(|b| b.is_ascii_alphanumeric());
        if named {
            self.round |= words.get(slash + 1).is_some_and(|limit| !limit.contains('.'));
            self.stats.insert(name, (used, limit));
        }
        named
    }

    fn described(&mut self, line: &str, words: &[&str]) -> bool {
        match words {
            ["Capacity:"] => self.part = Part::Capacity,
            ["Limits:" | "limits:"] => self.part = Part::Limits,
            ["Allocatable:" | "Requests:" | "Environment:" | "Mounts:" | "requests:"] => {
                self.part = Part::None
            }
            ["memory:", amount] if self.part != Part::None => {
                let Some(amount) = bytes(amount) else { return false };
                match self.part {
                    Part::Capacity => self.capacity = Some(amount),
                    _ => self.limit = Some(amount),
                }
            }
            ["Reason:" | "reason:" | "\"reason\":", "OOMKilled" | "\"OOMKilled\"" | "\"OOMKilled\","] => {
                self.killed += 1
            }
            // Events of a pod, and Docker's state of a container, pretty or in one line.
            ["\"OOMKilled\":", "true" | "true,"] => self.killed += 1,
            _ if line.contains("\"OOMKilled\":true") => self.killed += 1,
            ["Name:", name] if line.starts_with("Name:  ") => {
                self.pod = Some((*name).to_owned());
                // A process's status may begin so, too.
                return false;
            }
            _ if line.contains("System OOM encountered, victim process:") => self.system_kills += 1,
            _ => return false,
        }
        true
    }

    /// Adds the files. Returns notes for the reader.
    pub(crate) fn finish(self, source: &mut MemorySource) -> Vec<&'static str> {
        let mut notes = Vec::new();
        let mut limits: Vec<u64> = self.stats.values().map(|(_, limit)| *limit).collect();
        limits.dedup();
        let shared = self.stats.len() > 1 && limits.len() == 1 && !self.round;
        for (name, (used, limit)) in &self.stats {
            let at = |file: &str| format!("{GROUPS}/docker/{name}/{file}");
            source.insert(at("memory.current"), format!("{used}\n"));
            let limit = if shared { "max".to_owned() } else { limit.to_string() };
            source.insert(at("memory.max"), format!("{limit}\n"));
            source.insert(at("memory.stat"), "inactive_file 0\n");
        }
        if !self.stats.is_empty() {
            notes.push(
                "docker stats prints usage without the inactive page cache; it is taken as memory.current",
            );
        }
        if self.killed > 0 {
            let group = match &self.pod {
                Some(pod) => format!("kubepods/{}", plain(pod)),
                None => "CONTAINER".to_owned(),
            };
            let at = |file: &str| format!("{GROUPS}/{group}/{file}");
            source.insert(at("memory.events"), format!("oom {0}\noom_kill {0}\n", self.killed));
            if let Some(limit) = self.limit {
                source.insert(at("memory.max"), format!("{limit}\n"));
            }
            notes.push("OOMKilled is taken as oom_kill of the container's memory.events");
        }
        for (pod, kills) in &self.pods {
            source.insert(
                format!("{GROUPS}/kubepods/{pod}/memory.events"),
                format!("oom {kills}\noom_kill {kills}\n"),
            );
        }
        for (unit, figures) in &self.units {
            for (file, figure) in ["memory.current", "memory.high", "memory.max"].into_iter().zip(figures) {
                let figure = figure.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
                source.insert(format!("{GROUPS}/system.slice/{unit}/{file}"), format!("{figure}\n"));
            }
        }
        if self.system_kills > 0 {
            source.append("proc/vmstat", format!("oom_kill {}\n", self.system_kills).as_bytes());
            notes.push("kubelet's \"System OOM encountered\" is taken as oom_kill of /proc/vmstat");
        }
        if let Some(capacity) = self.capacity.filter(|_| source.get("proc/meminfo").is_none()) {
            source.insert("proc/meminfo", format!("MemTotal: {} kB\n", capacity / 1024));
        }
        notes
    }
}

/// A name that may stand in a path.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-@".contains(*c)).take(128).collect()
}

/// `3.9G`, `512.0K`: an amount as systemd writes it, in powers of 1,024.
fn short(word: &str) -> Option<u64> {
    match word.as_bytes() {
        [.., b'K' | b'M' | b'G' | b'T'] => bytes(&format!("{word}i")),
        _ => bytes(word),
    }
}

/// `1.9GiB`, `512Mi`, `8148720Ki`, `500M`, `1GB`: an amount as Docker and Kubernetes write it.
fn bytes(word: &str) -> Option<u64> {
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: f64 = match &word[number.len()..] {
        "B" => 1.0,
        "kB" | "k" | "KB" => 1e3,
        "MB" | "M" => 1e6,
        "GB" | "G" => 1e9,
        "KiB" | "Ki" => 1024.0,
        "MiB" | "Mi" => 1024.0 * 1024.0,
        "GiB" | "Gi" => 1024.0 * 1024.0 * 1024.0,
        "TiB" | "Ti" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value = number.parse::<f64>().ok().filter(|value| (0.0..1e15).contains(value))?;
    Some((value * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (MemorySource, usize) {
        let (mut containers, mut source) = (Containers::default(), MemorySource::default());
        let taken = text.lines().filter(|line| containers.take(line)).count();
        containers.finish(&mut source);
        (source, taken)
    }

    fn file(source: &MemorySource, path: &str) -> String {
        String::from_utf8_lossy(source.get(path).unwrap_or_default()).into_owned()
    }

    #[test]
    fn rows_of_docker_stats() {
        let (source, taken) = read(
            "CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT     MEM %     NET I/O       BLOCK I/O   PIDS\n\
             e4f0c8a1b2c3   web       12.50%    1.9GiB / 2GiB         95.00%    1kB / 2kB     0B / 0B     12\n\
             a4f0c8a1b2c3   db        0.10%     512MiB / 4GiB         12.50%    1kB / 2kB     0B / 0B     12\n",
        );
        assert_eq!(taken, 2);
        assert_eq!(file(&source, "sys/fs/cgroup/docker/web/memory.max"), "2147483648\n");
        assert_eq!(file(&source, "sys/fs/cgroup/docker/db/memory.current"), "536870912\n");
    }

    #[test]
    fn kills_as_lists_and_inspections_show_them() {
        let (source, _) = read(
            "NAME      READY   STATUS      RESTARTS   AGE\napi-5d9c  0/1     OOMKilled   5          12m\n\
             web-1     1/1     Running     0          12m\n",
        );
        assert_eq!(file(&source, "sys/fs/cgroup/kubepods/api-5d9c/memory.events"), "oom 5\noom_kill 5\n");
        assert_eq!(file(&source, "sys/fs/cgroup/kubepods/web-1/memory.events"), "");
        for text in [
            "{\"Status\":\"exited\",\"OOMKilled\":true,\"ExitCode\":137}\n",
            "        \"OOMKilled\": true,\n",
            "      reason: OOMKilled\n",
        ] {
            let (source, _) = read(text);
            let events = file(&source, "sys/fs/cgroup/CONTAINER/memory.events");
            assert_eq!(events, "oom 1\noom_kill 1\n", "{text}");
        }
    }

    #[test]
    fn units_as_systemctl_shows_them() {
        let (source, _) =
            read("\u{25cf} app.service - App\n     Memory: 3.9G (high: 3.5G max: 4.0G available: 80.0M)\n");
        assert_eq!(file(&source, "sys/fs/cgroup/system.slice/app.service/memory.max"), "4294967296\n");
        assert_eq!(file(&source, "sys/fs/cgroup/system.slice/app.service/memory.high"), "3758096384\n");
        let (source, _) = read("\u{25cf} a.service\n   Memory: 512.0M (limit: 1.0G)\n");
        assert_eq!(file(&source, "sys/fs/cgroup/system.slice/a.service/memory.max"), "1073741824\n");
        let (source, _) = read("\u{25cf} a.service\n   Memory: 512.0M\n");
        assert_eq!(file(&source, "sys/fs/cgroup/system.slice/a.service/memory.max"), "max\n");
    }

    #[test]
    fn the_same_limit_for_all_is_the_hosts_memory() {
        let (source, _) = read("a web 1.0% 1GiB / 7.65GiB 12%\nb db 1.0% 2GiB / 7.65GiB 25%\n");
        assert_eq!(file(&source, "sys/fs/cgroup/docker/web/memory.max"), "max\n");
    }

    #[test]
    fn what_kubectl_describes() {
        let (source, _) = read(
            "Name:         api-5d9c\n    Last State:     Terminated\n      Reason:       OOMKilled\n    Limits:\n      memory:  512Mi\n",
        );
        assert_eq!(file(&source, "sys/fs/cgroup/kubepods/api-5d9c/memory.events"), "oom 1\noom_kill 1\n");
        assert_eq!(file(&source, "sys/fs/cgroup/kubepods/api-5d9c/memory.max"), "536870912\n");
        let (source, _) = read(
            "Capacity:\n  memory:  8148720Ki\n  Warning  SystemOOM  2m  kubelet  System OOM encountered, victim process: java, pid: 12\n",
        );
        assert_eq!(file(&source, "proc/meminfo"), "MemTotal: 8148720 kB\n");
        assert_eq!(file(&source, "proc/vmstat"), "oom_kill 1\n");
    }
}
