//! The file of a trained model: safetensors with PyTorch's names and layouts.

use anyhow::{Context, bail};
use dp_train::model::Architecture;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

/// The bytes of the file.
pub fn write(architecture: &Architecture, parameters: &[f32]) -> anyhow::Result<Vec<u8>> {
    let bytes: Vec<u8> = parameters.iter().flat_map(|x| x.to_le_bytes()).collect();
    let views = architecture.parameters().iter().map(|parameter| {
        let range = 4 * parameter.range.start..4 * parameter.range.end;
        let view = TensorView::new(Dtype::F32, parameter.shape.clone(), &bytes[range])?;
        Ok((parameter.name.clone(), view))
    });
    let views = views.collect::<Result<Vec<_>, SafeTensorError>>()?;
    Ok(safetensors::serialize(views, None)?)
}

/// The flat parameters of an architecture, from the bytes of a file.
///
/// # Errors
/// If a tensor is missing, has another shape or another type, or is one too many.
pub fn read(architecture: &Architecture, bytes: &[u8]) -> anyhow::Result<Vec<f32>> {
    let file = SafeTensors::deserialize(bytes).context("it is not a safetensors file")?;
    if file.len() != architecture.parameters().len() {
        let expected = architecture.parameters().len();
        bail!("it has {} tensors, but the model has {expected}", file.len());
    }
    let mut values = vec![0.0; architecture.parameter_count()];
    for parameter in architecture.parameters() {
        let name = &parameter.name;
        let tensor = file.tensor(name).with_context(|| format!("tensor {name}"))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != parameter.shape {
            bail!(
                "tensor {name} is {:?} {:?}, but the model has F32 {:?}",
                tensor.dtype(),
                tensor.shape(),
                parameter.shape
            );
        }
        let (floats, _) = tensor.data().as_chunks::<4>();
        let target = &mut values[parameter.range.clone()];
        target.iter_mut().zip(floats).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use crate::convnet;
    use dp_train::model::initial_parameters;
    use dp_train::seeds::RunSeed;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_another_model_is_refused() {
        let convnet = convnet::convnet();
        let parameters = initial_parameters(&convnet, RunSeed(1));
        let bytes = write(&convnet, &parameters).unwrap();
        assert_eq!(read(&convnet, &bytes).unwrap(), parameters);
        let other = read(&convnet::convnet_tanh(), &bytes).unwrap_err();
        assert!(other.to_string().contains("tensors"), "{other}");
        let grey = convnet::convnet_for(
            dp_train::model::Shape::Image { channels: 1, height: 32, width: 32 },
            10,
        );
        let other = read(&grey.unwrap(), &bytes).unwrap_err();
        assert!(other.to_string().contains("0.weight"), "{other}");
        assert!(read(&convnet, &bytes[..1000]).is_err());
    }
}
