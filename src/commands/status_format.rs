//! The output format of commands that print text or JSON.

/// The output format instead of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum StatusFormat {
    Json,
}
