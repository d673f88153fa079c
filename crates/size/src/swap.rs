//! `size swap`: what vendors ask for, and how much the host can use.

use clap::Args;
use lotsfree_formulas::swap::{DRAIN_SECONDS, SAP_MIN, drain_limit, for_cold_memory, oracle, rhel, solaris};
use lotsfree_units::{Bytes, MIB};

use crate::answer::NO_RESTART;
use crate::check::{self, SizeError};
use crate::question::{HostFigures, Question, not_told, take};
use crate::{Answer, Value};

/// The host, and what it could swap.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapInput {
    /// Whether figures of a host or a saved source were taken.
    #[arg(skip)]
    pub sourced: bool,
    /// Memory of the host
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub ram: Option<Bytes>,
    /// All huge page pools
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub hugetlb: Option<Bytes>,
    /// Anonymous memory that can stay out
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub cold: Option<Bytes>,
    /// Bytes per second that the swap device reads
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub bandwidth: Option<Bytes>,
    /// Swap that exists
    #[arg(long, value_name = "SIZE", value_parser = check::amount)]
    pub current: Option<Bytes>,
}

impl Question for SwapInput {
    fn take_from(&mut self, host: &HostFigures) -> Result<(), SizeError> {
        self.sourced = true;
        take(&mut self.ram, host.ram);
        take(&mut self.hugetlb, host.hugetlb);
        take(&mut self.current, host.swap);
        Ok(())
    }

    fn kernel(&self) -> Option<Option<&str>> {
        None
    }

    fn answer(&self) -> Result<Answer, SizeError> {
        swap(self)
    }
}

/// Sizes swap.
///
/// # Errors
///
/// [`SizeError`] for an empty or impossible amount, pools that leave no RAM, or `cold` without `bandwidth`.
pub fn swap(input: &SwapInput) -> Result<Answer, SizeError> {
    let ram = check::ram(input.ram, input.sourced)?;
    let hugetlb = check::memory_or_none("hugetlb", input.hugetlb.unwrap_or_default())?;
    if hugetlb >= ram {
        return Err(SizeError::PoolExceedsRam { pool: hugetlb, ram });
    }
    let current = input.current.map(|bytes| check::memory_or_none("current", bytes)).transpose()?;
    let net = ram - hugetlb;
    let mut answer = Answer::new(format!("Swap for a host with {ram}"));
    answer.step("RAM that can be swapped", format!("{ram} - {hugetlb}"), Value::Bytes(net));
    let by_oracle = oracle(net);
    match by_oracle {
        Some(bytes) => answer.step("Oracle", oracle_formula(net), Value::Bytes(bytes)),
        None => answer.alert("Oracle has no row for less than 1 GiB of RAM beside the pools."),
    }
    let by_rhel = rhel(ram);
    answer.step("Red Hat, no hibernation", rhel_formula(ram), Value::Bytes(by_rhel));
    answer.step("SAP", "at least", Value::Bytes(SAP_MIN));
    let (least, most) = solaris(ram);
    answer.detail("Solaris 9 and 10, least", format!("0.5 x {ram}"), Value::Bytes(least));
    answer.detail("Solaris 9 and 10, most", format!("1.5 x {ram}"), Value::Bytes(most));

    let wanted = match (input.cold, input.bandwidth) {
        (Some(cold), bandwidth) => for_this_host(&mut answer, cold, bandwidth)?,
        (None, Some(_)) => {
            return Err(SizeError::Missing {
                field: "cold",
                accepted: "the anonymous memory that may stay in swap, such as 4GiB",
            });
        }
        (None, None) => {
            let wanted = by_oracle.unwrap_or(Bytes::ZERO).max(by_rhel).max(SAP_MIN);
            answer.conclude(
                format!("{wanted} satisfy Oracle, Red Hat and SAP at once; a host without SAP needs less."),
                Value::Bytes(wanted),
            );
            answer.alert(
                "Vendors' rows follow from RAM, not from need. Give the cold anonymous memory and the device's \
                 bandwidth for a figure that fits this host.",
            );
            wanted
        }
    };
    set_up(&mut answer, wanted, current, input.sourced);
    Ok(answer)
}

/// What is missing, how to add it, and what is commonly got wrong.
fn set_up(answer: &mut Answer, wanted: Bytes, current: Option<Bytes>, sourced: bool) {
    let missing = wanted - current.unwrap_or(Bytes::ZERO);
    if let Some(current) = current {
        answer.step("to add", format!("{wanted} - {current}"), Value::Bytes(missing));
    }
    match current {
        Some(current) if missing == Bytes::ZERO => {
            answer.observe(Some(true), format!("It suffices: the host has {current} of swap."));
        }
        Some(current) => answer.observe(
            Some(false),
            format!(
                "It does not suffice: the host has {current} of swap, {missing} less than what is asked for."
            ),
        ),
        None => answer.observe(
            None,
            format!(
                "Whether the host has enough is not known: {}.",
                not_told("its swap", "--current SIZE", sourced)
            ),
        ),
    }
    if missing > Bytes::ZERO {
        let mib = missing.units_of(Bytes(MIB));
        answer.file("/etc/fstab", vec!["/swapfile none swap defaults,pri=10 0 0".into()]);
        for command in [
            format!("fallocate -l {mib}M /swapfile"),
            "chmod 600 /swapfile".into(),
            "mkswap /swapfile".into(),
            "swapon --priority 10 /swapfile".into(),
        ] {
            answer.command(command);
        }
        answer.check("grep /swapfile /proc/swaps", format!("Size {}, Used 0, Priority 10", (mib << 10) - 4));
        answer.restart(NO_RESTART);
    }
    answer.warn(
        "Elasticsearch, Cassandra and real-time programs ask for no swap at all: protect them with memory.swap.max=0 \
         or mlock instead of taking swap from the rest of the host.",
    );
    answer.warn("Keep swap off the disks that hold the data, and off rotating disks.");
    answer.warn(
        "Solaris reserves swap when memory is asked for, Linux when it is swapped out (unless overcommit_memory is \
         2): the Solaris rule does not carry over.",
    );
    answer.correct(
        "\"Swap in use means the host swaps\": pages that went out long ago and are not needed may stay there. The \
         rates pswpin and pswpout tell, not the amount.",
    );
}

/// Swap for memory that is cold, as far as the device reads it back in time.
fn for_this_host(answer: &mut Answer, cold: Bytes, bandwidth: Option<Bytes>) -> Result<Bytes, SizeError> {
    let cold = check::memory_or_none("cold", cold)?;
    let bandwidth = check::memory(
        "bandwidth",
        bandwidth.ok_or(SizeError::Missing {
            field: "bandwidth",
            accepted: "the read bandwidth of the swap device per second, such as 200MiB",
        })?,
    )?;
    let drain = drain_limit(bandwidth);
    answer.step("cold anonymous memory", "", Value::Bytes(cold));
    answer.step(
        "reads back in ten minutes",
        format!("{DRAIN_SECONDS} s x {bandwidth}/s"),
        Value::Bytes(drain),
    );
    let wanted = for_cold_memory(cold, bandwidth);
    answer.step("this host", format!("min({cold}, {drain})"), Value::Bytes(wanted));
    if wanted < cold {
        answer.alert(format!(
            "The device needs more than ten minutes to read {cold} back: more swap than {drain} only prolongs \
             the time after which an overloaded host gives up."
        ));
    }
    answer.conclude(format!("{wanted} hold what this host can do without."), Value::Bytes(wanted));
    Ok(wanted)
}

/// The row of Oracle's table.
fn oracle_formula(net: Bytes) -> String {
    match net {
        net if net <= Bytes::gib(2) => format!("1 to 2 GiB: 1.5 x {net}"),
        net if net <= Bytes::gib(16) => "2 to 16 GiB: as RAM".into(),
        _ => "above 16 GiB".into(),
    }
}

/// The row of Red Hat's table.
fn rhel_formula(ram: Bytes) -> String {
    match ram {
        ram if ram <= Bytes::gib(2) => format!("to 2 GiB: 2 x {ram}"),
        ram if ram <= Bytes::gib(8) => "2 to 8 GiB: as RAM".into(),
        _ => "above 8 GiB: at least".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(answer: &Answer, text: &str) -> Value {
        answer.steps.iter().find(|step| step.text.contains(text)).unwrap().value
    }

    #[test]
    fn rows_beside_each_other() {
        let input =
            SwapInput { ram: Some(Bytes::gib(128)), hugetlb: Some(Bytes::gib(120)), ..SwapInput::default() };
        let answer = swap(&input).unwrap();
        assert_eq!(value(&answer, "Oracle"), Value::Bytes(Bytes::gib(8)));
        assert_eq!(value(&answer, "Red Hat"), Value::Bytes(Bytes::gib(4)));
        assert_eq!(value(&answer, "SAP"), Value::Bytes(Bytes::gib(10)));
        assert_eq!(value(&answer, "least"), Value::Bytes(Bytes::gib(64)));
        assert_eq!(value(&answer, "most"), Value::Bytes(Bytes::gib(192)));
        assert_eq!(answer.result.value, Value::Bytes(Bytes::gib(10)));
        assert_eq!(answer.commands[0], "fallocate -l 10240M /swapfile");
        // The first page of the file is the header.
        let check = "grep /swapfile /proc/swaps  # Size 10485756, Used 0, Priority 10";
        assert_eq!(
            (answer.commands.last().unwrap().as_str(), answer.restart.as_deref()),
            (check, Some(NO_RESTART))
        );
        let whole = swap(&SwapInput { hugetlb: None, ..input }).unwrap();
        assert_eq!(whole.result.value, Value::Bytes(Bytes::gib(16)));
    }

    #[test]
    fn what_the_host_can_use_and_what_is_missing() {
        let input = SwapInput {
            ram: Some(Bytes::gib(64)),
            cold: Some(Bytes::gib(6)),
            bandwidth: Some(Bytes::mib(100)),
            current: Some(Bytes::gib(2)),
            ..SwapInput::default()
        };
        let answer = swap(&input).unwrap();
        assert_eq!(answer.result.value, Value::Bytes(Bytes::gib(6)));
        assert_eq!(value(&answer, "to add"), Value::Bytes(Bytes::gib(4)));
        let slow = swap(&SwapInput { bandwidth: Some(Bytes::mib(5)), ..input.clone() }).unwrap();
        assert_eq!(slow.result.value, Value::Bytes(Bytes::mib(3000)));
        assert!(slow.warnings[0].contains("ten minutes"));
        let enough = swap(&SwapInput { current: Some(Bytes::gib(6)), ..input }).unwrap();
        assert!(enough.commands.is_empty() && enough.configuration.is_empty());
    }

    #[test]
    fn bad_input_is_named() {
        let message = |input: SwapInput| swap(&input).unwrap_err().to_string();
        let base = SwapInput { ram: Some(Bytes::gib(8)), ..SwapInput::default() };
        assert!(message(SwapInput::default()).starts_with("--ram SIZE is missing;"));
        assert!(
            message(SwapInput { cold: Some(Bytes(1)), ..base.clone() }).starts_with("bandwidth is missing;")
        );
        assert!(
            message(SwapInput { bandwidth: Some(Bytes(1)), ..base.clone() }).starts_with("cold is missing;")
        );
        assert!(message(SwapInput { hugetlb: Some(Bytes::gib(8)), ..base }).contains("leaves no memory"));
    }
}
