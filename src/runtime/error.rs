//! What can go wrong in a session.

use crate::device::{ComputeError, DeviceError};
use crate::model::ModelError;
use crate::plan::PlanError;

/// Why a model was not loaded or a batch was not run.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The model is not sound, or gives no graph for the batch.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The graph did not run.
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The batch has no tokens.
    #[error("the batch has no tokens")]
    EmptyBatch,
    /// A token is not in the vocabulary.
    #[error("token {index} of the batch is {token}, expected 0 to {}", n_vocab - 1)]
    Token {
        /// Its place in the batch.
        index: usize,
        /// The token.
        token: i32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// The context asked for is longer than positions can count.
    #[error("a context of {n_ctx} tokens was asked for, expected at most {limit}")]
    ContextTooLong {
        /// Tokens asked for.
        n_ctx: usize,
        /// The most there can be.
        limit: usize,
    },
    /// The context has no room for the batch.
    #[error("{n_past} tokens are in the context and {n_tokens} more were given, but it holds {n_ctx}")]
    ContextFull {
        /// Tokens in the context.
        n_past: usize,
        /// Tokens in the batch.
        n_tokens: usize,
        /// Tokens the context holds.
        n_ctx: usize,
    },
}

impl From<DeviceError> for SessionError {
    fn from(error: DeviceError) -> Self {
        ComputeError::from(error).into()
    }
}

impl From<PlanError> for SessionError {
    fn from(error: PlanError) -> Self {
        ComputeError::from(error).into()
    }
}
