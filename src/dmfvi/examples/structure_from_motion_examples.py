"""The examples of docs/structure_from_motion.md, in their order."""
# ruff: noqa

from dmfvi import Network, StructureFromMotion
from dmfvi.datasets import make_cube
from dmfvi.readers import read_tracks

cube = make_cube()  # five cameras, 50 frames each; a vertex is NaN where the cube itself hides it
model = StructureFromMotion(network=Network.ring(5), random_state=0).fit(cube.hidden)
print(model.structure_, model.structure_cov_[0], model.reprojection_error_, model.metric_)
model.save_ply("cube.ply")
model.save_figure("cube.png")  # with 90 % ellipsoids
filled, std = model.impute(return_std=True)  # where hidden points would be seen
