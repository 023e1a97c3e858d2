//! Running models: weights on a device, and sessions that turn tokens into logits.

mod error;
mod inputs;
mod session;
mod weights;

pub use error::SessionError;
pub use session::{Outputs, Session, SessionOptions};
pub use weights::DeviceModel;
