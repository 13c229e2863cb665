// Runs an artifact from Rust, on inputs of ones, by the C interface of the runtime without Python.
//
//   tilewright export --format runtime -o libtilewright.a      writes the library and tilewright.h
//   rustc -L . -l static=tilewright -l m run.rs && ./run model.twm
//
// The types are those of tilewright.h; `bindgen tilewright.h` writes them as well.

use std::ffi::{c_char, c_void, CStr, CString};
use std::process::ExitCode;

const MAX_RANK: usize = 32;

#[repr(C)]
struct Error {
    text: [c_char; 1024],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Array {
    kind: *const c_char,
    rank: i32,
    shape: [i64; MAX_RANK],
    data: *mut c_void,
}

#[repr(C)]
struct Tensor {
    name: *const c_char,
    kind: *const c_char,
    text: *const c_char,
    rank: i32,
    shape: [i64; MAX_RANK],
}

#[repr(C)]
struct RawModel {
    _private: [u8; 0],
}

extern "C" {
    fn tw_model_open(
        path: *const c_char,
        threads: i32,
        model: *mut *mut RawModel,
        error: *mut Error,
    ) -> bool;
    fn tw_model_close(model: *mut RawModel);
    fn tw_model_input_count(model: *const RawModel) -> i32;
    fn tw_model_output_count(model: *const RawModel) -> i32;
    fn tw_model_input(model: *const RawModel, number: i32) -> *const Tensor;
    fn tw_model_output(model: *const RawModel, number: i32) -> *const Tensor;
    fn tw_model_run(
        model: *mut RawModel,
        inputs: *const Array,
        outputs: *mut Array,
        error: *mut Error,
    ) -> bool;
    fn tw_array_elements(array: *const Array) -> i64;
    fn tw_arrays_free(arrays: *mut Array, count: i32);
}

impl Error {
    fn new() -> Error {
        Error { text: [0; 1024] }
    }

    fn message(&self) -> String {
        unsafe { CStr::from_ptr(self.text.as_ptr()) }.to_string_lossy().into_owned()
    }
}

impl Array {
    const NONE: Array =
        Array { kind: std::ptr::null(), rank: 0, shape: [0; MAX_RANK], data: std::ptr::null_mut() };
}

struct Model {
    raw: *mut RawModel,
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { tw_model_close(self.raw) }
    }
}

// Arrays that a model has made; their memory goes with this value.
struct Outputs(Vec<Array>);

impl Drop for Outputs {
    fn drop(&mut self) {
        unsafe { tw_arrays_free(self.0.as_mut_ptr(), self.0.len() as i32) }
    }
}

impl Model {
    fn open(path: &str, threads: i32) -> Result<Model, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let (mut raw, mut error) = (std::ptr::null_mut(), Error::new());
        match unsafe { tw_model_open(path.as_ptr(), threads, &mut raw, &mut error) } {
            true => Ok(Model { raw }),
            false => Err(error.message()),
        }
    }

    fn inputs(&self) -> Vec<&Tensor> {
        let count = unsafe { tw_model_input_count(self.raw) };
        (0..count).map(|k| unsafe { &*tw_model_input(self.raw, k) }).collect()
    }

    fn outputs(&self) -> Vec<&Tensor> {
        let count = unsafe { tw_model_output_count(self.raw) };
        (0..count).map(|k| unsafe { &*tw_model_output(self.raw, k) }).collect()
    }

    fn run(&mut self, inputs: &[Array]) -> Result<Outputs, String> {
        if inputs.len() != self.inputs().len() {
            return Err("the model takes another number of inputs".to_string());
        }
        let mut outputs = Outputs(vec![Array::NONE; self.outputs().len()]);
        let mut error = Error::new();
        let given = inputs.as_ptr();
        match unsafe { tw_model_run(self.raw, given, outputs.0.as_mut_ptr(), &mut error) } {
            true => Ok(outputs),
            false => Err(error.message()),
        }
    }
}

// An array of ones in float32; dimensions that depend on the inputs are 1. It uses `memory`.
fn ones(wanted: &Tensor, memory: &mut Vec<f32>) -> Array {
    let mut made = Array { kind: wanted.kind, rank: wanted.rank, ..Array::NONE };
    for axis in 0..wanted.rank as usize {
        made.shape[axis] = wanted.shape[axis].max(1);
    }
    memory.resize(unsafe { tw_array_elements(&made) } as usize, 1.0);
    made.data = memory.as_mut_ptr().cast();
    made
}

fn run(path: &str) -> Result<(), String> {
    let mut model = Model::open(path, 0)?;
    let mut memory: Vec<Vec<f32>> = model.inputs().iter().map(|_| Vec::new()).collect();
    let wanted = model.inputs();
    let inputs: Vec<Array> = wanted.iter().zip(&mut memory).map(|(w, m)| ones(w, m)).collect();
    let outputs = model.run(&inputs)?;
    for (tensor, array) in model.outputs().iter().zip(&outputs.0) {
        println!("{}", unsafe { CStr::from_ptr(tensor.text) }.to_string_lossy());
        let count = unsafe { tw_array_elements(array) } as usize;
        for value in unsafe { std::slice::from_raw_parts(array.data as *const f32, count) } {
            println!("{value:e}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: run MODEL.twm");
        return ExitCode::FAILURE;
    };
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
