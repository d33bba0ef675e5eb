//! Arguments whose value is one of a few words.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A value that is one of a few words: they are offered in help and completion.
pub(crate) fn words<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}
