"""A folder that the original stage-1 scripts wrote, translated once into a campaign of ours, so that every tool reads it.

    sources → manifest_rows, launcher_log, train_log → pairing → runs → run_specs, endings, samples, merged_log → write → translate

Nothing of the original folder is changed: what is made of it lies in FOLDER/seatrial, and `translation.json` there says from what.
"""
