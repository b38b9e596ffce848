//! The output of commands that print a text or JSON.

/// The format instead of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum StatusFormat {
    Json,
}
