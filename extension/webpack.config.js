// Numbers in the order of use: the builder's own are hashes of paths, and differ from folder to folder.
module.exports = { optimization: { moduleIds: 'natural', chunkIds: 'natural' } };
