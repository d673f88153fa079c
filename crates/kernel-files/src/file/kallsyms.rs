//! `/proc/kallsyms`: where the kernel's functions are.

use crate::file::scan::{hexadecimal, lines, words};

/// The places of some of the kernel's functions, each up to the next symbol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// First address, address behind, and index of the function in the list that was asked for.
    ranges: Vec<(u64, u64, usize)>,
}

impl Functions {
    /// Finds functions in the text of the file. Suffixes that compilers add (`.part.0`, `.isra.0`,
    /// `.constprop.0`, `.cold`) belong to the function. Empty where addresses are hidden
    /// (`kernel.kptr_restrict`), as all are 0 then.
    pub fn find(text: &[u8], wanted: &[&str]) -> Self {
        let mut symbols = Vec::new();
        for (_, line) in lines(text) {
            let mut words = words(line);
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Some(address) = hexadecimal(address).filter(|address| *address != 0) else { continue };
            if !matches!(kind, b"t" | b"T" | b"w" | b"W") || words.next().is_some() {
                continue;
            }
            let plain = name.split(|byte| *byte == b'.').next().unwrap_or_default();
            symbols.push((address, wanted.iter().position(|name| name.as_bytes() == plain)));
        }
        symbols.sort_unstable();
        let mut ranges = Vec::new();
        for (number, (first, index)) in symbols.iter().enumerate() {
            let Some(index) = index else { continue };
            let next = symbols[number + 1..].iter().map(|(address, _)| *address).find(|next| next > first);
            ranges.push((*first, next.unwrap_or(first.saturating_add(1 << 12)), *index));
        }
        Functions { ranges }
    }

    /// Whether no function was found.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Which of the functions an address lies in.
    pub fn at(&self, address: u64) -> Option<usize> {
        let before = self.ranges.partition_point(|(first, ..)| *first <= address);
        let (_, behind, index) = self.ranges.get(before.checked_sub(1)?)?;
        (address < *behind).then_some(*index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"ffffffff81000000 T _stext\nffffffff81000100 t shrink_node.isra.0\n\
        ffffffff81000400 T kswapd\nffffffff81000300 t do_swap_page\nffffffff81000380 D some_data\n\
        ffffffffc0000000 t shrink_node\t[module]\n";

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let functions = Functions::find(TEXT, &["do_swap_page", "shrink_node"]);
        assert_eq!(functions.at(0xffff_ffff_8100_0100), Some(1));
        assert_eq!(functions.at(0xffff_ffff_8100_02ff), Some(1));
        assert_eq!(functions.at(0xffff_ffff_8100_0300), Some(0));
        assert_eq!(functions.at(0xffff_ffff_8100_0390), Some(0), "data is no function");
        assert_eq!(functions.at(0xffff_ffff_8100_0400), None);
        assert_eq!(functions.at(0xffff_ffff_8100_00ff), None);
        assert_eq!(functions.at(0xffff_ffff_c000_0000), None, "a module's function of the same name");
    }

    #[test]
    fn hidden_addresses_name_nothing() {
        let hidden = b"0000000000000000 T _stext\n0000000000000000 T kswapd\n";
        assert!(Functions::find(hidden, &["kswapd"]).is_empty());
    }

    proptest! {
        #[test]
        fn survives_random_bytes(text in prop::collection::vec(any::<u8>(), 0..400), address in any::<u64>()) {
            Functions::find(&text, &["a", "b"]).at(address);
        }
    }
}
