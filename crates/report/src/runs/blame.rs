//! Who lost time to memory in runs that stand side by side: a few sentences of what [`crate::blame`] tells.

use lotsfree_analysis::blame::Blame;
use lotsfree_analysis::view::View;

use crate::blame::BlameDetails;
use crate::blame::words::payer_sentence;

/// Heading of the sentences.
pub(super) const HEADING: &str = "Who lost time to memory";
/// Programs of one run that are told of; `lotsfree blame` has all.
const MOST_PAYERS: usize = 3;

/// The blame of a run whose rows tell; `None` where they do not, or nobody lost anything.
pub(super) fn of_view(view: &View<'_>) -> Option<Blame> {
    let blame = Blame::of(view.run, None);
    (blame.is_toll_known && !blame.payers.is_empty()).then_some(blame)
}

/// A sentence for each of those who lost most.
pub(super) fn sentences(view: &View<'_>) -> Vec<String> {
    let Some(blame) = of_view(view) else { return Vec::new() };
    let details = BlameDetails::of(view.run);
    blame.payers.iter().take(MOST_PAYERS).map(|payer| payer_sentence(payer, &blame, &details)).collect()
}
