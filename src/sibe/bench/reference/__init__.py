"""The same learner written the way this field usually writes it: what `sibe bench` compares with.

Plain on purpose, and independent of the product, so that making the product faster never moves the
reference: stacked observations twice in the replay, NCHW floats, pad-and-crop in float, an encoding
and a backward pass for each loss. A test holds its losses against those of the product.
"""
